/* oxptxas as a C library: PTX text in, cubin out, in memory.
 *
 * Names, numbers and signatures are those of NVIDIA's interface of this name, so that a program written for that one is
 * compiled and linked without changes; the words and the code behind them are our own. What each function does, and where it
 * differs: docs/c-library.md.
 *
 * A handle stands for one text and what came of compiling it. All functions may be called from any number of threads at once,
 * with different handles or the same. A handle that was destroyed or never made is noticed.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef OXPTXAS_NVPTXCOMPILER_H
#define OXPTXAS_NVPTXCOMPILER_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nvPTXCompiler *nvPTXCompilerHandle;

/* What every function returns. */
typedef enum {
    NVPTXCOMPILE_SUCCESS = 0,
    /* No such handle (any more). */
    NVPTXCOMPILE_ERROR_INVALID_COMPILER_HANDLE = 1,
    /* A null pointer, or no text. */
    NVPTXCOMPILE_ERROR_INVALID_INPUT = 2,
    /* The options or the PTX are refused: the error log says why. It is empty where nothing was asked to be compiled. */
    NVPTXCOMPILE_ERROR_COMPILATION_FAILURE = 3,
    /* An error in the compiler; the error log says what is known. */
    NVPTXCOMPILE_ERROR_INTERNAL = 4,
    NVPTXCOMPILE_ERROR_OUT_OF_MEMORY = 5,
    /* There is no code: nothing was compiled, or not with success. */
    NVPTXCOMPILE_ERROR_COMPILER_INVOCATION_INCOMPLETE = 6,
    /* The PTX is of a version that is not understood. */
    NVPTXCOMPILE_ERROR_UNSUPPORTED_PTX_VERSION = 7,
    /* Never returned. */
    NVPTXCOMPILE_ERROR_UNSUPPORTED_DEVSIDE_SYNC = 8,
    /* The callback wished it. */
    NVPTXCOMPILE_ERROR_CANCELLED = 9
} nvPTXCompileResult;

/* The release whose interface and options this is: 13 and 0. */
nvPTXCompileResult nvPTXCompilerGetVersion(unsigned int *major, unsigned int *minor);

/* How many versions of PTX are understood. */
nvPTXCompileResult nvPTXCompilerGetNumSupportedVersions(int *numVersions);

/* The versions, major and minor, ascending, into an array of as many. */
nvPTXCompileResult nvPTXCompilerGetSupportedVersions(int (*versions)[2]);

/* A handle for a text of ptxCodeLen bytes, or as far as its first byte of 0. The text is copied. */
nvPTXCompileResult nvPTXCompilerCreate(nvPTXCompilerHandle *compiler, size_t ptxCodeLen, const char *ptxCode);

/* Frees what belongs to a handle, and makes the variable null. */
nvPTXCompileResult nvPTXCompilerDestroy(nvPTXCompilerHandle *compiler);

/* Compiles with ptxas's options, one or (an option and its value) two strings for each. Without -arch, for sm_75. An output file
 * is not written. What is said is added to the logs of the handle. */
nvPTXCompileResult nvPTXCompilerCompile(nvPTXCompilerHandle compiler, int numCompileOptions,
                                        const char *const *compileOptions);

/* Bytes of the code, and the code into memory of as many. */
nvPTXCompileResult nvPTXCompilerGetCompiledProgramSize(nvPTXCompilerHandle compiler, size_t *binaryImageSize);
nvPTXCompileResult nvPTXCompilerGetCompiledProgram(nvPTXCompilerHandle compiler, void *binaryImage);

/* Bytes of the errors as text, and the text, into memory of as many. A byte of 0 at the end is counted; without any errors the
 * size is 0. */
nvPTXCompileResult nvPTXCompilerGetErrorLogSize(nvPTXCompilerHandle compiler, size_t *errorLogSize);
nvPTXCompileResult nvPTXCompilerGetErrorLog(nvPTXCompilerHandle compiler, char *errorLog);

/* The same of warnings and information, such as those of -v. */
nvPTXCompileResult nvPTXCompilerGetInfoLogSize(nvPTXCompilerHandle compiler, size_t *infoLogSize);
nvPTXCompileResult nvPTXCompilerGetInfoLog(nvPTXCompilerHandle compiler, char *infoLog);

/* A function that is called now and then while compiling, with payload and a null pointer, on the thread that compiles. Once it
 * returns 1 the compilation ends as soon as it can. */
nvPTXCompileResult nvPTXCompilerSetFlowCallback(nvPTXCompilerHandle compiler, int (*callback)(void *, void *),
                                                void *payload);

/* Not in NVIDIA's interface: "oxptxas" and our version, by which a program can tell what it is linked with. */
const char *oxptxasVersion(void);

#ifdef __cplusplus
}
#endif

#endif
