/* Modules from files that the argument names, libraries, the linker, what is told of PTX that is none; names and
   contexts. */
#include "driver.h"

static const char PTX[] = HEADER
    ".visible .entry seven(.param .u64 x)\n"
    "{\n"
    "  .reg .b64 %rd;\n"
    "  ld.param.u64 %rd, [x]; st.global.u32 [%rd], 7;\n"
    "  ret;\n"
    "}\n";

static void run(CUfunction f) {
    CUdeviceptr x;
    unsigned back;
    OK(cuMemAlloc_v2(&x, 4));
    void *params[] = {&x};
    OK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, 0, params, 0));
    OK(cuMemcpyDtoH_v2(&back, x, 4));
    WANT(back == 7);
}

static char *whole(const char *name) {
    FILE *file = fopen(name, "rb");
    WANT(file);
    char *bytes = malloc(1 << 20);
    bytes[fread(bytes, 1, (1 << 20) - 1, file)] = 0;
    fclose(file);
    return bytes;
}

int main(int argc, char **argv) {
    CUdevice device;
    WANT(cuDeviceGet(&device, 0) == 3);
    OK(cuInit(0));
    int count, version;
    OK(cuDeviceGetCount(&count));
    OK(cuDriverGetVersion(&version));
    WANT(count == 1 && version >= 13000 && cuDeviceGet(&device, 1) == 101);
    CUdeviceptr x;
    WANT(cuMemAlloc_v2(&x, 4) == 201);
    CUcontext primary, other, top;
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    OK(cuCtxCreate_v2(&other, 0, 0));
    OK(cuCtxGetCurrent(&top));
    WANT(top == other);
    OK(cuCtxPopCurrent_v2(&top));
    WANT(top == other);
    OK(cuCtxDestroy_v2(other));
    WANT(cuCtxPushCurrent_v2(other) == 201);

    for (int i = 1; i < argc; i++) {
        CUmodule module;
        OK(cuModuleLoad(&module, argv[i]));
        run(function(module, "seven"));
        OK(cuModuleUnload(module));
        OK(cuModuleLoadData(&module, whole(argv[i])));
        run(function(module, "seven"));
    }
    CUlibrary library;
    CUkernel kernel;
    OK(cuLibraryLoadData(&library, PTX, 0, 0, 0, 0, 0, 0));
    OK(cuLibraryGetKernel(&kernel, library, "seven"));
    WANT(cuLibraryGetKernel(&kernel, library, "eight") == 500);
    run(kernel);
    OK(cuLibraryUnload(library));

    CUlinkState link;
    void *cubin;
    size_t size;
    OK(cuLinkCreate_v2(0, 0, 0, &link));
    OK(cuLinkAddData_v2(link, 1, (void *)PTX, sizeof PTX, "seven.ptx", 0, 0, 0));
    OK(cuLinkComplete(link, &cubin, &size));
    WANT(size > 64 && !memcmp(cubin, "\177ELF", 4));
    CUmodule module = load(cubin);
    OK(cuLinkDestroy(link));
    run(function(module, "seven"));

    char log[1000] = "";
    int options[] = {5, 6};
    void *values[] = {log, (void *)sizeof log};
    WANT(cuModuleLoadDataEx(&module, HEADER ".entry f() { what; }", 2, options, values) == 218);
    WANT(strstr(log, "what") || strstr(log, "Parsing"));

    const char *name;
    OK(cuGetErrorName(700, &name));
    WANT(!strcmp(name, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    WANT(cuGetErrorName(12345, &name) == 1 && !name);
    void *f;
    int found;
    OK(cuGetProcAddress_v2("cuMemAlloc", &f, 12000, 0, &found));
    WANT(found == 0 && f == (void *)cuMemAlloc_v2);
    OK(cuGetProcAddress_v2("cuMemAlloc", &f, 2000, 0, &found));
    WANT(found == 0 && f && f != (void *)cuMemAlloc_v2);
    OK(cuGetProcAddress_v2("cuLaunchKernelEx", &f, 11000, 0, &found));
    WANT(found == 2 && !f);
    OK(cuGetProcAddress_v2("cuNothing", &f, 12000, 0, &found));
    WANT(found == 1 && !f && cuGetProcAddress_v2("cuNothing", &f, 12000, 0, 0) == 500);
    OK(cuGetProcAddress_v2("cuStreamSynchronize", &f, 12000, 2, &found));
    WANT(found == 0 && f && f != (void *)cuStreamSynchronize);

    /* What is not built says so once. */
    WANT(cuTexRefCreate(0) == 801 && cuTexRefCreate(0) == 801);
    OK(cuDevicePrimaryCtxRelease_v2(0));
    printf("done\n");
    return 0;
}
