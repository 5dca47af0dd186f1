/* What our library does beyond the contract: where NVIDIA's would crash, or hand out what an earlier compilation gave. */
#include "nvPTXCompiler.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                \
    do {                                                           \
        if (!(what)) {                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);     \
            return 1;                                              \
        }                                                          \
    } while (0)

static const char kernel[] = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";
static const char *const good[] = {"-arch=sm_90"};
static const char *const bad[] = {"-arch=sm_999"};
static pthread_t home;
static int calls, strangers;

static int callback(void *payload, void *reserved) {
    (void)payload;
    (void)reserved;
    ++calls;
    strangers += !pthread_equal(pthread_self(), home);
    return 0;
}

/* Wishes an end at the call of that number. */
static int later(void *payload, void *reserved) {
    (void)reserved;
    return --*(int *)payload <= 0;
}

int main(void) {
    nvPTXCompilerHandle h = NULL, old;
    const char *const nothing[] = {NULL};
    const char *const help[] = {"--help"};
    char text[64] = ".version 7.0\n.target sm_75\n// \xff\n";
    size_t size = 0;
    int n;
    CHECK(strncmp(oxptxasVersion(), "oxptxas ", 8) == 0);

    CHECK(nvPTXCompilerCreate(NULL, sizeof kernel, kernel) == NVPTXCOMPILE_ERROR_INVALID_INPUT);
    CHECK(nvPTXCompilerDestroy(NULL) == NVPTXCOMPILE_ERROR_INVALID_INPUT);
    CHECK(nvPTXCompilerCreate(&h, sizeof kernel, kernel) == NVPTXCOMPILE_SUCCESS);
    CHECK(nvPTXCompilerCompile(h, -1, good) == NVPTXCOMPILE_ERROR_INVALID_INPUT);
    CHECK(nvPTXCompilerCompile(h, 1, NULL) == NVPTXCOMPILE_ERROR_INVALID_INPUT);
    CHECK(nvPTXCompilerCompile(h, 1, nothing) == NVPTXCOMPILE_ERROR_INVALID_INPUT);

    /* A failure leaves no program of before. */
    CHECK(nvPTXCompilerCompile(h, 1, good) == NVPTXCOMPILE_SUCCESS);
    CHECK(nvPTXCompilerCompile(h, 1, bad) == NVPTXCOMPILE_ERROR_COMPILATION_FAILURE);
    CHECK(nvPTXCompilerGetCompiledProgramSize(h, &size) == NVPTXCOMPILE_ERROR_COMPILER_INVOCATION_INCOMPLETE);

    /* Nothing goes to the program's standard output (the test sees that it is empty). */
    CHECK(nvPTXCompilerCompile(h, 1, help) == NVPTXCOMPILE_ERROR_COMPILATION_FAILURE);
    CHECK(nvPTXCompilerGetInfoLogSize(h, &size) == NVPTXCOMPILE_SUCCESS && size > 1000);

    /* The callback is called more than once, on the thread that compiles, and may wish an end at any time. */
    home = pthread_self();
    CHECK(nvPTXCompilerSetFlowCallback(h, callback, NULL) == NVPTXCOMPILE_SUCCESS);
    CHECK(nvPTXCompilerCompile(h, 1, good) == NVPTXCOMPILE_SUCCESS);
    CHECK(calls > 10 && strangers == 0);
    for (n = 1; n <= calls; ++n) {
        int left = n;
        CHECK(nvPTXCompilerSetFlowCallback(h, later, &left) == NVPTXCOMPILE_SUCCESS);
        CHECK(nvPTXCompilerCompile(h, 1, good) == NVPTXCOMPILE_ERROR_CANCELLED);
        CHECK(nvPTXCompilerGetCompiledProgramSize(h, &size) == NVPTXCOMPILE_ERROR_COMPILER_INVOCATION_INCOMPLETE);
    }

    /* A handle that is no more is noticed. */
    old = h;
    CHECK(nvPTXCompilerDestroy(&h) == NVPTXCOMPILE_SUCCESS && h == NULL);
    h = old;
    CHECK(nvPTXCompilerDestroy(&h) == NVPTXCOMPILE_ERROR_INVALID_COMPILER_HANDLE);
    CHECK(nvPTXCompilerCompile(old, 1, good) == NVPTXCOMPILE_ERROR_INVALID_COMPILER_HANDLE);
    CHECK(nvPTXCompilerGetErrorLogSize(old, &size) == NVPTXCOMPILE_ERROR_INVALID_COMPILER_HANDLE);
    CHECK(nvPTXCompilerDestroy((nvPTXCompilerHandle *)&text) == NVPTXCOMPILE_ERROR_INVALID_COMPILER_HANDLE);

    /* What is no text is an error with its place. */
    CHECK(nvPTXCompilerCreate(&h, sizeof text, text) == NVPTXCOMPILE_SUCCESS);
    CHECK(nvPTXCompilerCompile(h, 1, good) == NVPTXCOMPILE_ERROR_COMPILATION_FAILURE);
    {
        char log[500];
        CHECK(nvPTXCompilerGetErrorLogSize(h, &size) == NVPTXCOMPILE_SUCCESS && size < sizeof log);
        CHECK(nvPTXCompilerGetErrorLog(h, log) == NVPTXCOMPILE_SUCCESS);
        CHECK(strstr(log, "ptxas application ptx input, line 3; fatal   : "));
    }
    CHECK(nvPTXCompilerDestroy(&h) == NVPTXCOMPILE_SUCCESS);
    return 0;
}
