/* Memory of every kind that is not freed when its context ends, and copies of what nobody has written. */
#include "driver.h"

static const char PTX[] = HEADER
    ".extern .func (.param .b64 r) malloc(.param .b64 n);\n"
    ".visible .entry take(.param .u64 out)\n"
    "{\n"
    "  .reg .b64 %rd<3>; .param .b64 n; .param .b64 r;\n"
    "  ld.param.u64 %rd1, [out];\n"
    "  st.param.b64 [n], 96;\n"
    "  call.uni (r), malloc, (n);\n"
    "  ld.param.b64 %rd2, [r]; st.global.u64 [%rd1], %rd2;\n"
    "  ret;\n"
    "}\n"
    ".extern .func free(.param .b64 p);\n"
    ".visible .entry give_back()\n"
    "{\n"
    "  .reg .b64 %rd; .param .b64 n; .param .b64 r; .param .b64 p;\n"
    "  st.param.b64 [n], 64;\n"
    "  call.uni (r), malloc, (n);\n"
    "  ld.param.b64 %rd, [r]; st.u64 [%rd], 1; st.param.b64 [p], %rd;\n"
    "  call.uni free, (p);\n"
    "  ret;\n"
    "}\n"
    ".visible .entry read(.param .u64 out, .param .u64 in)\n"
    "{\n"
    "  .reg .b64 %rd<3>; .reg .b32 %r;\n"
    "  ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in];\n"
    "  ld.global.u32 %r, [%rd2]; st.global.u32 [%rd1], %r;\n"
    "  ret;\n"
    "}\n";

int main(void) {
    CUcontext context = start();
    CUmodule module = load(PTX);
    CUdeviceptr device, managed, pool, freed, copy;
    void *pinned, *params[] = {&device};
    OK(cuMemAlloc_v2(&device, 32));
    OK(cuMemAllocManaged(&managed, 48, 1));
    OK(cuMemHostAlloc(&pinned, 80, 0));
    OK(cuMemAllocAsync(&pool, 112, 0));
    OK(cuMemAlloc_v2(&freed, 144));
    OK(cuLaunchKernel(function(module, "take"), 1, 1, 1, 1, 1, 1, 0, 0, params, 0));

    OK(cuLaunchKernel(function(module, "give_back"), 2, 1, 1, 64, 1, 1, 0, 0, 0, 0));

    /* A copy of what nobody has written is not written either. */
    unsigned zero = 0;
    char back[144];
    OK(cuMemAlloc_v2(&copy, 16));
    OK(cuMemcpyHtoD_v2(freed, &zero, 4));
    OK(cuMemcpyDtoD_v2(copy, freed, 16));
    void *first[] = {&device, &copy};
    OK(cuLaunchKernel(function(module, "read"), 1, 1, 1, 1, 1, 1, 0, 0, first, 0));
    CUdeviceptr behind = copy + 4;
    void *second[] = {&device, &behind};
    OK(cuLaunchKernel(function(module, "read"), 1, 1, 1, 1, 1, 1, 0, 0, second, 0));
    OK(cuMemcpyDtoH_v2(back, freed, 144));
    OK(cuMemFree_v2(copy));
    OK(cuMemFree_v2(freed));
    OK(cuCtxDestroy_v2(context));
    printf("done\n");
    return 0;
}
