/* FILE OPTION...: the cubin of a PTX file on standard output, through the library. */
#include "nvPTXCompiler.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    nvPTXCompilerHandle compiler = NULL;
    static char text[1 << 22];
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    size_t length = file ? fread(text, 1, sizeof text, file) : 0, size = 0;
    if (nvPTXCompilerCreate(&compiler, length, text) != NVPTXCOMPILE_SUCCESS) {
        fprintf(stderr, "no PTX\n");
        return 1;
    }
    if (nvPTXCompilerCompile(compiler, argc - 2, (const char *const *)argv + 2) != NVPTXCOMPILE_SUCCESS) {
        nvPTXCompilerGetErrorLogSize(compiler, &size);
        char *log = calloc(size + 1, 1);
        nvPTXCompilerGetErrorLog(compiler, log);
        fputs(log, stderr);
        return 1;
    }
    nvPTXCompilerGetCompiledProgramSize(compiler, &size);
    char *cubin = malloc(size);
    nvPTXCompilerGetCompiledProgram(compiler, cubin);
    fwrite(cubin, 1, size, stdout);
    nvPTXCompilerDestroy(&compiler);
    return 0;
}
