/* What launches take: shared memory, clusters, cooperation, attributes, occupancy; what threads print. */
#include "driver.h"

static const char PTX[] = HEADER
    ".extern .shared .align 4 .b8 dynamic[];\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    ".global .align 1 .b8 text[10] = {98, 108, 111, 99, 107, 32, 37, 117, 10, 0};\n"
    /* Each block says where it is, once all blocks are there. */
    ".visible .entry meet(.param .u64 counter, .param .u64 out)\n"
    "{\n"
    "  .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p<2>;\n"
    "  ld.param.u64 %rd1, [counter]; ld.param.u64 %rd2, [out];\n"
    "  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x;\n"
    "  atom.global.add.u32 %r3, [%rd1], 1;\n"
    "LOOP: ld.volatile.global.u32 %r4, [%rd1]; setp.lt.u32 %p0, %r4, %r2; @%p0 bra LOOP;\n"
    "  mul.wide.u32 %rd3, %r1, 4; add.u64 %rd2, %rd2, %rd3; st.global.u32 [%rd2], %r4;\n"
    "  ret;\n"
    "}\n"
    /* The threads of a block turn their values around in shared memory. */
    ".visible .entry turn(.param .u64 out)\n"
    "{\n"
    "  .reg .b32 %r<8>; .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [out];\n"
    "  mov.u32 %r1, %tid.x; mov.u32 %r2, dynamic; shl.b32 %r3, %r1, 2; add.u32 %r4, %r2, %r3;\n"
    "  st.shared.u32 [%r4], %r1; bar.sync 0;\n"
    "  mov.u32 %r5, %ntid.x; sub.u32 %r5, %r5, 1; shl.b32 %r5, %r5, 2; sub.u32 %r5, %r5, %r3; add.u32 %r5, %r5, %r2;\n"
    "  ld.shared.u32 %r6, [%r5]; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r6;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry size(.param .u64 out)\n"
    "{\n"
    "  .reg .b32 %r1; .reg .b64 %rd1;\n"
    "  ld.param.u64 %rd1, [out]; mov.u32 %r1, %dynamic_smem_size; st.global.u32 [%rd1], %r1;\n"
    "  ret;\n"
    "}\n"
    ".visible .entry say()\n"
    "{\n"
    "  .local .align 8 .b32 args[2]; .reg .b32 %r<3>; .reg .b64 %rd<4>;\n"
    "  .param .b64 f; .param .b64 a; .param .b32 r;\n"
    "  mov.u32 %r1, %ctaid.x; st.local.u32 [args], %r1;\n"
    "  cvta.global.u64 %rd1, text; mov.u64 %rd2, args; cvta.local.u64 %rd2, %rd2;\n"
    "  st.param.b64 [f], %rd1; st.param.b64 [a], %rd2;\n"
    "  call.uni (r), vprintf, (f, a);\n"
    "  ret;\n"
    "}\n";

static const char CLUSTER[] = ".version 7.8\n.target sm_90\n.address_size 64\n"
    ".visible .entry rank(.param .u64 out)\n"
    "{\n"
    "  .reg .b32 %r<4>; .reg .b64 %rd<4>;\n"
    "  ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %cluster_nctarank;\n"
    "  mad.lo.u32 %r2, %r3, 16, %r2; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2; st.global.u32 [%rd1], %r2;\n"
    "  ret;\n"
    "}\n";

int main(void) {
    start();
    CUmodule module = load(PTX);
    CUdeviceptr counter, out;
    unsigned back[64];
    OK(cuMemAlloc_v2(&counter, 4));
    OK(cuMemAlloc_v2(&out, sizeof back));

    OK(cuMemsetD32_v2(counter, 0, 1));
    CUfunction meet = function(module, "meet");
    void *params[] = {&counter, &out};
    OK(cuLaunchCooperativeKernel(meet, 16, 1, 1, 1, 1, 1, 0, 0, params));
    OK(cuMemcpyDtoH_v2(back, out, 64));
    for (int i = 0; i < 16; i++)
        WANT(back[i] == 16);
    int fit, many;
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&fit, meet, 1, 0));
    OK(cuDeviceGetAttribute(&many, 16, 0));
    WANT(cuLaunchCooperativeKernel(meet, fit * many + 1, 1, 1, 1, 1, 1, 0, 0, params) == 720);

    CUfunction turn = function(module, "turn");
    void *one[] = {&out};
    OK(cuLaunchKernel(turn, 1, 1, 1, 64, 1, 1, 256, 0, one, 0));
    OK(cuMemcpyDtoH_v2(back, out, 256));
    for (int i = 0; i < 64; i++)
        WANT(back[i] == 63u - i);
    WANT(cuLaunchKernel(turn, 1, 1, 1, 64, 1, 1, 60 << 10, 0, one, 0) == 1);
    int most;
    OK(cuDeviceGetAttribute(&most, 97, 0));
    OK(cuFuncSetAttribute(turn, 8, most));
    OK(cuLaunchKernel(turn, 1, 1, 1, 64, 1, 1, most, 0, one, 0));
    WANT(cuFuncSetAttribute(turn, 8, most + 1) == 1);
    WANT(cuLaunchKernel(turn, 1, 1, 1, 2048, 1, 1, 0, 0, one, 0) == 1);
    WANT(cuLaunchKernel(turn, 0, 1, 1, 1, 1, 1, 0, 0, one, 0) == 1);
    size_t offset, size;
    OK(cuFuncGetParamInfo(meet, 1, &offset, &size));
    WANT(offset == 8 && size == 8 && cuFuncGetParamInfo(meet, 2, &offset, &size) == 1);
    const char *name;
    OK(cuFuncGetName(&name, turn));
    WANT(!strcmp(name, "turn"));
    int grid, block;
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, turn, 0, 0, 0));
    WANT(grid > 0 && block > 0 && block <= 1024);

    OK(cuLaunchKernel(function(module, "size"), 1, 1, 1, 1, 1, 1, 1234, 0, one, 0));
    OK(cuMemcpyDtoH_v2(back, out, 4));
    WANT(back[0] == 1234);

    OK(cuLaunchKernel(function(module, "say"), 3, 1, 1, 1, 1, 1, 0, 0, 0, 0));

    int major;
    OK(cuDeviceGetAttribute(&major, 75, 0));
    if (major >= 9) {
        CUfunction rank = function(load(CLUSTER), "rank");
        LaunchAttribute a = {.id = 4, .value.dim = {2, 1, 1}};
        LaunchConfig config = {.grid = {4, 1, 1}, .block = {1, 1, 1}, .attributes = &a, .count = 1};
        OK(cuLaunchKernelEx(&config, rank, one, 0));
        OK(cuMemcpyDtoH_v2(back, out, 16));
        WANT(back[0] == 32 && back[1] == 33 && back[2] == 32 && back[3] == 33);
        config.grid[0] = 3;
        WANT(cuLaunchKernelEx(&config, rank, one, 0) == 912);
    } else {
        LaunchAttribute a = {.id = 4, .value.dim = {2, 1, 1}};
        LaunchConfig config = {.grid = {4, 1, 1}, .block = {1, 1, 1}, .attributes = &a, .count = 1};
        WANT(cuLaunchKernelEx(&config, function(module, "size"), one, 0) == 801);
        a.value.dim[0] = 1;
        OK(cuLaunchKernelEx(&config, function(module, "size"), one, 0));
    }
    printf("done\n");
    return 0;
}
