/* Variables of modules: what their addresses are, and managed ones, which the host reaches by the same address. */
#include "driver.h"

CUresult cuLibraryGetGlobal(CUdeviceptr *, size_t *, CUlibrary, const char *);
CUresult cuLibraryGetModule(CUmodule *, CUlibrary);

static const char PTX[] = HEADER
    ".visible .global .attribute(.managed) .u32 both = 7;\n"
    ".visible .global .attribute(.managed) .u32 room[10];\n"
    ".visible .global .u32 own = 8;\n"
    ".visible .entry add()\n"
    "{\n"
    "  .reg .b32 %r<3>;\n"
    "  ld.global.u32 %r0, [both]; ld.global.u32 %r1, [own]; add.u32 %r2, %r0, %r1;\n"
    "  st.global.u32 [both], %r2; st.global.u32 [room+12], %r2;\n"
    "  ret;\n"
    "}\n";

int main(void) {
    CUcontext context, of;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    CUmodule module;
    OK(cuModuleLoadData(&module, PTX));
    CUdeviceptr both, room, own;
    size_t size;
    unsigned managed, kind, back;
    OK(cuModuleGetGlobal_v2(&both, &size, module, "both"));
    WANT(size == 4);
    OK(cuModuleGetGlobal_v2(&room, &size, module, "room"));
    WANT(size == 40);
    OK(cuModuleGetGlobal_v2(&own, &size, module, "own"));

    volatile unsigned *word = (void *)both, *words = (void *)room;
    WANT(*word == 7 && words[9] == 0);
    *word = 100;
    OK(cuLaunchKernel(function(module, "add"), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
    OK(cuCtxSynchronize());
    WANT(*word == 108 && words[3] == 108);
    OK(cuMemcpyDtoH_v2(&back, both, 4));
    WANT(back == 108);

    OK(cuPointerGetAttribute(&managed, 8, both));
    WANT(managed == 1);
    OK(cuPointerGetAttribute(&managed, 8, own));
    WANT(managed == 0);
    OK(cuPointerGetAttribute(&kind, 2, own));
    WANT(kind == 2);
    OK(cuPointerGetAttribute(&of, 1, own));
    WANT(of == context);
    OK(cuPointerGetAttribute(&size, 12, room + 4));
    WANT(size == 40);
    WANT(cuMemFree_v2(both) == 1 && cuMemFree_v2(own) == 1);
    OK(cuModuleUnload(module));
    WANT(cuPointerGetAttribute(&managed, 8, both) == 1 && cuPointerGetAttribute(&managed, 8, own) == 1);

    CUlibrary library;
    OK(cuLibraryLoadData(&library, PTX, 0, 0, 0, 0, 0, 0));
    OK(cuLibraryGetManaged(&both, &size, library, "both"));
    WANT(*(unsigned *)both == 7 && cuLibraryGetManaged(&own, &size, library, "own") == 500);

    /* Each context has variables of a library of its own, but for managed ones. */
    CUcontext second;
    CUdeviceptr its, of_module;
    CUkernel add;
    OK(cuLibraryGetKernel(&add, library, "add"));
    OK(cuLibraryGetGlobal(&own, &size, library, "own"));
    OK(cuMemsetD8_v2(own, 0, size));
    OK(cuCtxCreate_v2(&second, 0, 0));
    OK(cuLibraryGetGlobal(&its, &size, library, "own"));
    WANT(its != own);
    OK(cuMemcpyDtoH_v2(&back, its, 4));
    WANT(back == 8);
    OK(cuMemsetD8_v2(its, 1, size));
    OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
    OK(cuCtxSynchronize());
    WANT(*(unsigned *)both == 7 + 0x01010101);
    OK(cuLibraryGetModule(&module, library));
    WANT(cuModuleUnload(module) == 800);
    OK(cuModuleGetGlobal_v2(&of_module, &size, module, "own"));
    WANT(of_module == its);
    OK(cuCtxSetCurrent(context));
    OK(cuMemcpyDtoH_v2(&back, own, 4));
    WANT(back == 0);
    OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
    OK(cuCtxSynchronize());
    WANT(*(unsigned *)both == 7 + 0x01010101);
    OK(cuCtxDestroy_v2(second));
    WANT(cuMemcpyDtoH_v2(&back, its, 4) == 1);
    OK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0));
    OK(cuCtxSynchronize());
    OK(cuLibraryUnload(library));
    WANT(cuMemcpyDtoH_v2(&back, own, 4) == 1);

    /* What is asked for of memory is remembered. */
    CUdeviceptr x;
    int one = 1, set = 0;
    OK(cuMemAlloc_v2(&x, 4));
    OK(cuPointerSetAttribute(&one, 6, x));
    OK(cuPointerGetAttribute(&set, 6, x));
    WANT(set == 1);
    OK(cuMemFree_v2(x));
    OK(cuCtxDestroy_v2(context));
    printf("done\n");
    return 0;
}
