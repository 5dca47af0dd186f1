/* Streams, events and graphs by chance, with waits for values that the host writes by chance: everything is done once, in an order that
   keeps what has to come before what, and as soon as it can be. The argument says how many times. */
#include "driver.h"

CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, unsigned, unsigned);
CUresult cuGraphAddEventWaitNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUevent);
CUresult cuGraphAddBatchMemOpNode(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const Batch *);

enum { STREAMS = 5, EVENTS = 3, GRAPHS = 2, STEPS = 80, NODES = 5, MOST = 1024, WORDS = MOST / 64, EQ = 1, NOT_READY = 600 };

/* What is done: a bit for each thing, and for each the things that come before it. */
typedef struct {
    uint64_t bits[WORDS];
} Set;
static Set before[MOST], done, none;
static int count, position[MOST], length, twice;

static void add(Set *to, const Set *more) {
    for (int i = 0; i < WORDS; i++)
        to->bits[i] |= more->bits[i];
}
static int within(const Set *a, const Set *b) {
    for (int i = 0; i < WORDS; i++)
        if (a->bits[i] & ~b->bits[i])
            return 0;
    return 1;
}
static void put(Set *s, int n) { s->bits[n / 64] |= 1ull << n % 64; }
static int has(const Set *s, int n) { return s->bits[n / 64] >> n % 64 & 1; }

/* A new thing behind others; the set that is done with it. */
static Set thing(Set after) {
    before[count] = after;
    put(&after, count++);
    return after;
}

static void note(void *n) {
    int thing = (int)(intptr_t)n;
    twice |= has(&done, thing);
    put(&done, thing);
    position[thing] = length++;
}

static unsigned seed;
static unsigned chance(unsigned most) {
    seed = seed * 1664525 + 1013904223;
    return (seed >> 16) % most;
}

/* A value that is waited for is a thing that the host does. */
static volatile unsigned *flags;
static CUdeviceptr at;
static int flag_things[MOST], is_flag[MOST], flag_count;
static int flag(void) {
    int f = flag_count++;
    flags[f] = 0;
    flag_things[f] = count;
    is_flag[count] = 1;
    thing(none);
    return f;
}
static void write_flag(int f) {
    if (!has(&done, flag_things[f])) {
        note((void *)(intptr_t)flag_things[f]);
        flags[f] = 1;
    }
}

/* A graph: what its nodes are, after which they come, and the things that they did or are to do, launch by launch. */
enum { NOTE, VALUE, RECORD, WAIT };
typedef struct {
    int what, event, flag, after[NODES], things[STEPS], first, last;
} Node;
typedef struct {
    CUgraphExec exec;
    Node nodes[NODES];
    Set last;
} Graph;

static void note_next(void *of) {
    Node *n = of;
    note((void *)(intptr_t)n->things[n->first++]);
}

/* Stream 0 is the one that everyone shares, for which 1 and 2 wait, and it for them. */
static CUstream streams[STREAMS];
static CUevent events[EVENTS];
static Set lasts[STREAMS], records[EVENTS];
static int is_blocking(int s) { return s <= 2; }

/* What something comes after that is submitted to a stream now. */
static Set submitted(int s) {
    Set after = lasts[s];
    if (s == 0) {
        add(&after, &lasts[1]);
        add(&after, &lasts[2]);
    } else if (is_blocking(s))
        add(&after, &lasts[0]);
    return after;
}

static void make(Graph *g) {
    CUgraph graph;
    CUgraphNode nodes[NODES];
    memset(g, 0, sizeof *g);
    OK(cuGraphCreate(&graph, 0));
    for (int n = 0; n < NODES; n++) {
        Node *node = &g->nodes[n];
        CUgraphNode after[NODES];
        size_t edges = 0;
        for (int m = 0; m < n; m++)
            if ((node->after[m] = chance(3) == 0))
                after[edges++] = nodes[m];
        node->what = (const int[]){NOTE, NOTE, NOTE, VALUE, RECORD, WAIT}[chance(6)];
        /* An event is of one node of a graph, or what it is would be left open. */
        node->event = chance(EVENTS);
        for (int m = 0; m < n; m++)
            if (node->what >= RECORD && g->nodes[m].what >= RECORD && g->nodes[m].event == node->event)
                node->what = NOTE;
        struct {
            void (*function)(void *);
            void *data;
        } host = {note_next, node};
        switch (node->what) {
        case NOTE:
            OK(cuGraphAddHostNode(&nodes[n], graph, after, edges, &host));
            break;
        case VALUE: {
            node->flag = flag();
            Operation wait = {.op = {1, at + 4 * node->flag, 1, EQ, 0}};
            Batch batch = {0, 1, &wait, 0};
            OK(cuGraphAddBatchMemOpNode(&nodes[n], graph, after, edges, &batch));
            break;
        }
        case RECORD:
            OK(cuGraphAddEventRecordNode(&nodes[n], graph, after, edges, events[node->event]));
            break;
        case WAIT:
            OK(cuGraphAddEventWaitNode(&nodes[n], graph, after, edges, events[node->event]));
            break;
        }
    }
    OK(cuGraphInstantiateWithFlags(&g->exec, graph, 0));
    OK(cuGraphDestroy(graph));
}

static void launch(Graph *g, int s) {
    Set roots = submitted(s), ends[NODES], all;
    add(&roots, &g->last);
    all = roots;
    for (int n = 0; n < NODES; n++) {
        Node *node = &g->nodes[n];
        ends[n] = roots;
        for (int m = 0; m < n; m++)
            if (node->after[m])
                add(&ends[n], &ends[m]);
        if (node->what == NOTE) {
            node->things[node->last++] = count;
            ends[n] = thing(ends[n]);
        }
        if (node->what == VALUE)
            put(&ends[n], flag_things[node->flag]);
        if (node->what == WAIT)
            add(&ends[n], &records[node->event]);
        if (node->what == RECORD)
            records[node->event] = ends[n];
        add(&all, &ends[n]);
    }
    OK(cuGraphLaunch(g->exec, streams[s]));
    lasts[s] = g->last = all;
}

/* Whether all that can be done is done, and nothing else; a stream is ready when all of it is. */
static void look(void) {
    for (int s = 1; s < STREAMS; s++) {
        int ready = cuStreamQuery(streams[s]);
        WANT(ready == 0 || ready == NOT_READY);
        WANT((ready == 0) == within(&lasts[s], &done));
    }
    for (int n = 0; n < count; n++)
        WANT(is_flag[n] || has(&done, n) == within(&before[n], &done));
    for (int e = 0; e < EVENTS; e++)
        WANT((cuEventQuery(events[e]) == 0) == within(&records[e], &done));
}

static void once(unsigned with) {
    static Graph graphs[GRAPHS];
    seed = with;
    count = length = twice = flag_count = 0;
    done = none;
    memset(is_flag, 0, sizeof is_flag);
    memset(lasts, 0, sizeof lasts);
    memset(records, 0, sizeof records);
    for (int g = 0; g < GRAPHS; g++)
        make(&graphs[g]);
    for (int step = 0; step < STEPS; step++) {
        int s = chance(STREAMS), e = chance(EVENTS), n = count;
        switch (chance(8)) {
        case 0:
        case 1:
            lasts[s] = thing(submitted(s));
            OK(cuLaunchHostFunc(streams[s], note, (void *)(intptr_t)n));
            break;
        case 2: {
            int f = flag();
            lasts[s] = submitted(s);
            put(&lasts[s], flag_things[f]);
            OK(cuStreamWaitValue32_v2(streams[s], at + 4 * f, 1, EQ));
            break;
        }
        case 3:
            lasts[s] = records[e] = submitted(s);
            OK(cuEventRecord(events[e], streams[s]));
            break;
        case 4:
            OK(cuStreamWaitEvent(streams[s], events[e], 0));
            /* Where all of that is done, nothing is submitted. */
            if (!within(&records[e], &done)) {
                lasts[s] = submitted(s);
                add(&lasts[s], &records[e]);
            }
            break;
        case 5:
        case 6:
            if (flag_count)
                write_flag(chance(flag_count));
            break;
        case 7: {
            int g = chance(GRAPHS);
            launch(&graphs[g], s);
            break;
        }
        }
        if (chance(3) == 0)
            look();
    }
    for (int f = 0; f < flag_count; f++)
        write_flag(f);
    OK(cuCtxSynchronize());
    look();
    WANT(length == count && !twice);
    for (int n = 0; n < count; n++)
        for (int m = 0; m < count; m++)
            WANT(!has(&before[n], m) || position[m] < position[n]);
    for (int g = 0; g < GRAPHS; g++)
        OK(cuGraphExecDestroy(graphs[g].exec));
}

int main(int argc, char **argv) {
    start();
    for (int s = 1; s < STREAMS; s++)
        OK(cuStreamCreate(&streams[s], !is_blocking(s)));
    for (int e = 0; e < EVENTS; e++)
        OK(cuEventCreate(&events[e], 0));
    OK(cuMemHostAlloc((void **)&flags, 4 * MOST, 2));
    OK(cuMemHostGetDevicePointer_v2(&at, (void *)flags, 0));
    for (int n = 0; n < (argc > 1 ? atoi(argv[1]) : 50); n++) {
        for (int e = 0; e < EVENTS; e++)
            OK(cuEventRecord(events[e], streams[1]));
        once(n);
    }
    printf("done\n");
}
