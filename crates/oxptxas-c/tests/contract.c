/* What nvPTXCompiler does, point by point, as lines that are compared (contract.txt). The same program is linked with our library
 * and with NVIDIA's. Compiled as C99 against either header. */
#include "nvPTXCompiler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char kernel[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                             ".visible .entry k(.param .u64 p) {\n"
                             "  .reg .b64 %rd<3>;\n  .reg .b32 %r<3>;\n"
                             "  ld.param.u64 %rd1, [p];\n  mov.u32 %r1, %tid.x;\n"
                             "  st.global.u32 [%rd1], %r1;\n  ret;\n}\n";
static const char wrong[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
                            ".visible .entry k(.param .u64 p) {\n"
                            "  .reg .b64 %rd<3>;\n  .reg .b32 %r<3>;\n"
                            "  add.u32 %r1, %r2, %rd1;\n  ret;\n}\n";

/* A log, line by line; times are not the same twice. */
static void show(const char *what, char *text, size_t size) {
    char *line, *time;
    printf("  %s: ", what);
    if (size == 0) {
        puts("empty");
        return;
    }
    puts(strlen(text) + 1 == size ? "ends with a byte of 0 that is counted" : "OF ANOTHER LENGTH");
    for (line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        time = strstr(line, "Compile time = ");
        if (time) strcpy(time, "Compile time = T");
        /* The newest version of PTX. */
        time = strstr(line, "current version is '");
        if (time) strcpy(time, "current version is 'V'");
        /* How many registers the code takes is the compiler's own affair. */
        time = strstr(line, "Used ");
        if (time) strcpy(time, "Used R");
        printf("    %s\n", line);
    }
}

static void state(nvPTXCompilerHandle h) {
    size_t size = 12345;
    char *text;
    printf("  sizes: %d", (int)nvPTXCompilerGetErrorLogSize(h, &size));
    text = calloc(size + 1, 1);
    printf(" %d\n", (int)nvPTXCompilerGetErrorLog(h, text));
    show("errors", text, size);
    free(text);
    nvPTXCompilerGetInfoLogSize(h, &size);
    text = calloc(size + 1, 1);
    nvPTXCompilerGetInfoLog(h, text);
    show("information", text, size);
    free(text);
    size = 12345;
    printf("  program: %d", (int)nvPTXCompilerGetCompiledProgramSize(h, &size));
    if (size != 12345) {
        text = malloc(size);
        printf(" %d", (int)nvPTXCompilerGetCompiledProgram(h, text));
        printf(" %s", memcmp(text, "\177ELF", 4) ? "NO ELF" : "ELF");
        free(text);
    }
    puts("");
}

/* One compilation with all that is to be seen of it. */
static void compile(const char *point, const char *text, size_t length, int count, const char *const *options) {
    nvPTXCompilerHandle h = NULL;
    printf("%s: create %d", point, (int)nvPTXCompilerCreate(&h, length, text));
    printf(" compile %d\n", (int)nvPTXCompilerCompile(h, count, options));
    state(h);
    nvPTXCompilerDestroy(&h);
}

static int calls;

static int ends(void *payload, void *reserved) {
    ++calls;
    *(int *)payload = reserved == NULL;
    return 1;
}

static int goes_on(void *payload, void *reserved) {
    (void)payload;
    (void)reserved;
    ++calls;
    return 0;
}

static int answers_two(void *payload, void *reserved) {
    (void)payload;
    (void)reserved;
    return 2;
}

static void unaccompanied(void) {
    unsigned major = 0, minor = 0;
    int count = 0, n, ascending = 1, (*pairs)[2];
    size_t size;
    char text[8];
    nvPTXCompilerHandle h = NULL;
    printf("version: %d", (int)nvPTXCompilerGetVersion(&major, &minor));
    printf(" %u.%u\n", major, minor);
    printf("PTX versions: %d", (int)nvPTXCompilerGetNumSupportedVersions(&count));
    pairs = malloc((size_t)count * sizeof *pairs);
    printf(" %d", (int)nvPTXCompilerGetSupportedVersions(pairs));
    for (n = 1; n < count; ++n) ascending &= pairs[n - 1][0] * 100 + pairs[n - 1][1] < pairs[n][0] * 100 + pairs[n][1];
    printf(" %s, from", ascending ? "ascending" : "NOT ASCENDING");
    for (n = 0; n < count && n < 44; ++n) printf(" %d.%d", pairs[n][0], pairs[n][1]);
    puts("");
    free(pairs);
    printf("null pointers for results: %d %d %d\n", (int)nvPTXCompilerGetVersion(NULL, NULL),
           (int)nvPTXCompilerGetNumSupportedVersions(NULL), (int)nvPTXCompilerGetSupportedVersions(NULL));
    printf("no text: %d", (int)nvPTXCompilerCreate(&h, 5, NULL));
    printf(" %d", (int)nvPTXCompilerCreate(&h, 0, kernel));
    printf(" %d", (int)nvPTXCompilerCreate(&h, 0, ""));
    printf(" %s\n", h ? "A HANDLE" : "no handle");
    printf("null handle: %d %d %d %d", (int)nvPTXCompilerCompile(NULL, 0, NULL),
           (int)nvPTXCompilerGetCompiledProgramSize(NULL, &size), (int)nvPTXCompilerGetCompiledProgram(NULL, text),
           (int)nvPTXCompilerGetErrorLogSize(NULL, &size));
    printf(" %d %d %d %d %d\n", (int)nvPTXCompilerGetErrorLog(NULL, text), (int)nvPTXCompilerGetInfoLogSize(NULL, &size),
           (int)nvPTXCompilerGetInfoLog(NULL, text), (int)nvPTXCompilerSetFlowCallback(NULL, goes_on, NULL),
           (int)nvPTXCompilerDestroy(&h));
}

static void one_handle(void) {
    const char *const twice[] = {"-arch=sm_90", "-maxrregcount=10"};
    const char *const missing[] = {"-arch=sm_999"};
    const char *const plain[] = {"--gpu-name=sm_90"};
    char copy[sizeof kernel], byte[8];
    nvPTXCompilerHandle h;
    puts("before compiling");
    nvPTXCompilerCreate(&h, sizeof kernel, kernel);
    state(h);
    printf("  no program: %d\n", (int)nvPTXCompilerGetCompiledProgram(h, byte));
    printf("null pointers of a handle: %d %d", (int)nvPTXCompilerGetErrorLogSize(h, NULL),
           (int)nvPTXCompilerGetInfoLogSize(h, NULL));
    nvPTXCompilerCompile(h, 2, twice);
    printf(" %d %d %d %d %d\n", (int)nvPTXCompilerGetErrorLog(h, NULL), (int)nvPTXCompilerGetInfoLog(h, NULL),
           (int)nvPTXCompilerGetCompiledProgramSize(h, NULL), (int)nvPTXCompilerGetCompiledProgram(h, NULL),
           (int)nvPTXCompilerSetFlowCallback(h, NULL, NULL));
    printf("compiled again: %d, information is added\n", (int)nvPTXCompilerCompile(h, 2, twice));
    state(h);
    printf("destroyed twice: %d", (int)nvPTXCompilerDestroy(&h));
    printf(" %s", h ? "NOT CLEARED" : "cleared");
    printf(" %d\n", (int)nvPTXCompilerDestroy(&h));

    nvPTXCompilerCreate(&h, sizeof kernel, kernel);
    printf("failed twice, then not: %d", (int)nvPTXCompilerCompile(h, 1, missing));
    printf(" %d", (int)nvPTXCompilerCompile(h, 1, missing));
    printf(" %d\n", (int)nvPTXCompilerCompile(h, 1, plain));
    state(h);
    nvPTXCompilerDestroy(&h);

    memcpy(copy, kernel, sizeof kernel);
    nvPTXCompilerCreate(&h, sizeof kernel, copy);
    memset(copy, 'x', sizeof copy);
    printf("the text is copied: %d\n", (int)nvPTXCompilerCompile(h, 1, plain));
    nvPTXCompilerDestroy(&h);
}

static void callbacks(void) {
    const char *const plain[] = {"-arch=sm_90"};
    const char *const missing[] = {"-arch=sm_999"};
    int reserved = -1;
    nvPTXCompilerHandle h;
    nvPTXCompilerCreate(&h, sizeof kernel, kernel);
    printf("callback: %d", (int)nvPTXCompilerSetFlowCallback(h, goes_on, NULL));
    printf(" %d", (int)nvPTXCompilerCompile(h, 1, plain));
    printf(" %s\n", calls ? "called" : "NOT CALLED");
    nvPTXCompilerDestroy(&h);
    calls = 0;
    nvPTXCompilerCreate(&h, sizeof kernel, kernel);
    nvPTXCompilerSetFlowCallback(h, ends, &reserved);
    printf("  null: %d, the old one stays\n", (int)nvPTXCompilerSetFlowCallback(h, NULL, NULL));
    printf("  cancels: %d", (int)nvPTXCompilerCompile(h, 1, plain));
    printf(" called %s, reserved %s\n", calls == 1 ? "once" : "OFTEN", reserved == 1 ? "null" : "NOT NULL");
    state(h);
    printf("  options come first: %d\n", (int)nvPTXCompilerCompile(h, 1, missing));
    nvPTXCompilerDestroy(&h);
    nvPTXCompilerCreate(&h, sizeof wrong, wrong);
    nvPTXCompilerSetFlowCallback(h, ends, &reserved);
    printf("  PTX comes after: %d\n", (int)nvPTXCompilerCompile(h, 1, plain));
    nvPTXCompilerDestroy(&h);
    nvPTXCompilerCreate(&h, sizeof kernel, kernel);
    nvPTXCompilerSetFlowCallback(h, answers_two, NULL);
    printf("  only 1 ends it: %d\n", (int)nvPTXCompilerCompile(h, 1, plain));
    nvPTXCompilerDestroy(&h);
}

#define POINT(name, text, length, ...)                                               \
    do {                                                                             \
        const char *const options[] = {__VA_ARGS__};                                 \
        compile(name, text, length, (int)(sizeof options / sizeof *options), options); \
    } while (0)

int main(void) {
    char garbage[sizeof kernel + 99];
    static const char newer[] = ".version 99.0\n.target sm_75\n";
    static const char target[] = ".version 8.8\n.target sm_120\n.visible .entry k() { ret; }\n";
    static const char two[] = ".version 8.0\n.target sm_75\n.visible .entry a() { ret; }\n.visible .entry b() { ret; }\n";
    memset(garbage, 'x', sizeof garbage);
    memcpy(garbage, kernel, sizeof kernel);
    unaccompanied();
    one_handle();
    callbacks();
    compile("no options", kernel, sizeof kernel, 0, NULL);
    compile("no options, newer target", target, sizeof target, 0, NULL);
    POINT("length without the byte of 0", kernel, sizeof kernel - 1, "-arch=sm_90");
    POINT("garbage behind it", garbage, sizeof garbage, "-arch=sm_90");
    POINT("an option and its value", kernel, sizeof kernel, "-arch", "sm_90");
    POINT("two options in one string", kernel, sizeof kernel, "-arch=sm_90 -O1");
    POINT("unknown target", kernel, sizeof kernel, "-arch=sm_999");
    POINT("unknown option", kernel, sizeof kernel, "-foo");
    POINT("an option of the command line's", kernel, sizeof kernel, "-arch=sm_90", "-jobserver");
    POINT("another", kernel, sizeof kernel, "--list-version");
    /* NVIDIA's library remembers -w and -Werror of other handles until it comes to the PTX, so this one goes before them. */
    POINT("warning of the options", kernel, sizeof kernel, "-arch=sm_80", "-arch=sm_90");
    POINT("output file", kernel, sizeof kernel, "-arch=sm_90", "-o", "contract-output");
    POINT("statistics", two, sizeof two, "-arch=sm_90", "-v");
    POINT("warning", kernel, sizeof kernel, "-arch=sm_90", "-maxrregcount=10");
    POINT("warning as error", kernel, sizeof kernel, "-arch=sm_90", "-maxrregcount=10", "-Werror");
    POINT("no warnings", kernel, sizeof kernel, "-arch=sm_90", "-maxrregcount=10", "-w");
    POINT("wrong PTX", wrong, sizeof wrong, "-arch=sm_90");
    POINT("wrong PTX and a warning", wrong, sizeof wrong, "-arch=sm_90", "-maxrregcount=10");
    POINT("PTX of a version to come", newer, sizeof newer, "-arch=sm_90");
    POINT("newer target", target, sizeof target, "-arch=sm_90");
    POINT("only checked", kernel, sizeof kernel, "-arch=compute_90");
    POINT("wrong and only checked", wrong, sizeof wrong, "-arch=compute_90");
    POINT("object", kernel, sizeof kernel, "-arch=sm_90", "-c");
    POINT("file that is missing", kernel, sizeof kernel, "-arch=sm_90", "missing.ptx");
    POINT("standard input", kernel, sizeof kernel, "-arch=sm_90", "-");
    POINT("an option of the library's", kernel, sizeof kernel, "-arch=sm_90", "--elf");
    POINT("kernel that is missing", kernel, sizeof kernel, "-arch=sm_90", "-e", "nope");
    return 0;
}
