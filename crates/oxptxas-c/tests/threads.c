/* THREADS COUNT OUTPUT FILE...: so many threads compile so many texts each, the files in turn, all at once; what comes of a file is the
 * same bytes each time, which go to OUTPUT.N for the Nth file. */
#include "nvPTXCompiler.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct file {
    char *text, *code;
    size_t length, size;
};

static struct file *files;
static int count, each;

/* The code of a text, with one option that is wrong first: errors are at once with the rest. */
static char *compile(const struct file *f, size_t *size) {
    const char *const options[] = {"-arch=sm_90", "-v"};
    const char *const wrong[] = {"-arch=sm_90", "-nothing"};
    nvPTXCompilerHandle h = NULL;
    char *code = NULL;
    size_t log = 0;
    if (nvPTXCompilerCreate(&h, f->length, f->text)) return NULL;
    if (nvPTXCompilerCompile(h, 2, wrong) == NVPTXCOMPILE_ERROR_COMPILATION_FAILURE && !nvPTXCompilerCompile(h, 2, options) &&
        !nvPTXCompilerGetCompiledProgramSize(h, size) && !nvPTXCompilerGetInfoLogSize(h, &log) && log > 100) {
        code = malloc(*size);
        nvPTXCompilerGetCompiledProgram(h, code);
    }
    nvPTXCompilerDestroy(&h);
    return code;
}

static void *work(void *first) {
    int n;
    for (n = 0; n < each; ++n) {
        const struct file *f = &files[(*(int *)first + n) % count];
        size_t size = 0;
        char *code = compile(f, &size);
        int same = code && size == f->size && !memcmp(code, f->code, size);
        free(code);
        if (!same) return first;
    }
    return NULL;
}

int main(int argc, char **argv) {
    int threads = atoi(argv[1]), n, failed = 0;
    pthread_t *all = calloc((size_t)threads, sizeof *all);
    int *numbers = calloc((size_t)threads, sizeof *numbers);
    each = atoi(argv[2]);
    count = argc - 4;
    files = calloc((size_t)count, sizeof *files);
    for (n = 0; n < count; ++n) {
        struct file *f = &files[n];
        char path[4096];
        FILE *in = fopen(argv[4 + n], "rb"), *out;
        if (!in) return 2;
        f->text = malloc(1 << 20);
        f->length = fread(f->text, 1, 1 << 20, in);
        fclose(in);
        f->code = compile(f, &f->size);
        if (!f->code) return 3;
        snprintf(path, sizeof path, "%s.%d", argv[3], n);
        out = fopen(path, "wb");
        if (!out || fwrite(f->code, 1, f->size, out) != f->size || fclose(out)) return 4;
    }
    for (n = 0; n < threads; ++n) {
        numbers[n] = n;
        if (pthread_create(&all[n], NULL, work, &numbers[n])) return 5;
    }
    for (n = 0; n < threads; ++n) {
        void *wrong = NULL;
        pthread_join(all[n], &wrong);
        failed += wrong != NULL;
    }
    printf("%d threads failed\n", failed);
    return failed != 0;
}
