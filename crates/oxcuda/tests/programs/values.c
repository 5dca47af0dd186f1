/* Flags and values that nobody knows, contexts that are not the program's to end, launches that are not as compiled. */
#include "driver.h"

static const char PTX[] = HEADER
    ".visible .entry fixed(.param .u32 n) .reqntid 8, 4\n{ ret; }\n";
static const char CLUSTER[] = ".version 7.8\n.target sm_90\n.address_size 64\n"
    ".visible .entry free() { ret; }\n"
    ".visible .entry two() .reqnctapercluster 2 { ret; }\n";

int main(void) {
    CUcontext context, primary, other;
    OK(cuInit(0));
    WANT(cuCtxCreate_v2(&context, 3, 0) == 1 && cuCtxCreate_v2(&context, 256, 0) == 1);
    /* The primary context ends when nobody holds it any more, and is the same one when it is there again. */
    OK(cuDevicePrimaryCtxRetain(&primary, 0));
    OK(cuCtxSetCurrent(primary));
    WANT(cuCtxDestroy_v2(primary) == 201);
    OK(cuCtxSynchronize());
    OK(cuDevicePrimaryCtxRelease_v2(0));
    WANT(cuCtxSynchronize() == 709 && cuDevicePrimaryCtxRelease_v2(0) == 201);
    OK(cuDevicePrimaryCtxRetain(&other, 0));
    WANT(other == primary);
    OK(cuCtxSynchronize());

    WANT(cuCtxAttach(&other, 1) == 1 && cuCtxSetCacheConfig(4) == 1 && cuCtxSetFlags(5) == 1);
    CUevent e;
    CUstream s;
    OK(cuStreamCreate(&s, 0));
    WANT(cuEventCreate(&e, 8) == 1 && cuEventCreate(&e, 4) == 1);
    OK(cuEventCreate(&e, 0));
    WANT(cuEventRecordWithFlags(e, s, 2) == 1 && cuStreamWaitEvent(s, e, 2) == 1);
    WANT(cuStreamCreate(&s, 2) == 1);

    CUdeviceptr x, managed;
    void *host;
    size_t pitch;
    OK(cuMemAlloc_v2(&x, 4096));
    OK(cuMemAllocManaged(&managed, 4096, 1));
    WANT(cuMemAllocManaged(&managed, 4096, 3) == 1 && cuMemHostAlloc(&host, 64, 8) == 1);
    WANT(cuMemAllocPitch_v2(&x, &pitch, 64, 64, 5) == 1);
    OK(cuMemAdvise(managed, 4096, 1, 0));
    WANT(cuMemAdvise(managed, 4097, 1, 0) == 1 && cuMemAdvise(managed, 64, 7, 0) == 1);
    WANT(cuMemAdvise(x, 64, 1, 0) == 1 && cuMemAdvise(managed, 64, 3, 1) == 101);
    OK(cuMemPrefetchAsync(managed, 4096, -1, 0));
    WANT(cuMemPrefetchAsync(x, 64, 0, 0) == 1 && cuMemPrefetchAsync(managed, 64, 2, 0) == 101);
    OK(cuStreamAttachMemAsync(s, managed, 0, 4));
    WANT(cuStreamAttachMemAsync(s, managed, 0, 3) == 1 && cuStreamAttachMemAsync(s, managed, 64, 1) == 1);
    WANT(cuStreamAttachMemAsync(s, x, 0, 1) == 1);
    /* Rows that lie in each other. */
    WANT(cuMemsetD2D8_v2(x, 16, 0, 17, 2) == 1);
    OK(cuMemsetD2D8_v2(x, 16, 0, 16, 2));
    char bytes[256];
    Copy2D copy = {.srcKind = 2, .srcDevice = x, .srcPitch = 16, .dstKind = 1, .dstHost = bytes, .dstPitch = 16, .width = 17, .height = 2};
    WANT(cuMemcpy2D_v2(&copy) == 1);
    copy.width = 12;
    copy.srcX = 5;
    WANT(cuMemcpy2D_v2(&copy) == 1);
    copy.srcX = 4;
    OK(cuMemcpy2D_v2(&copy));
    copy.srcKind = 9;
    WANT(cuMemcpy2D_v2(&copy) == 1);

    /* Options of the compiler, inputs of the linker, PTX of tomorrow. */
    CUmodule module;
    int option = 7, unknown = 99;
    void *value = (void *)5;
    WANT(cuModuleLoadDataEx(&module, PTX, 1, &option, &value) == 1);
    WANT(cuModuleLoadDataEx(&module, PTX, 1, &unknown, &value) == 1);
    value = (void *)4;
    OK(cuModuleLoadDataEx(&module, PTX, 1, &option, &value));
    WANT(cuModuleLoadData(&module, ".version 99.0\n.target sm_75\n.address_size 64\n") == 222);
    WANT(cuModuleLoadData(&module, ".version 7.8\n.target sm_75\n.what\n") == 218);
    CUlinkState link;
    OK(cuLinkCreate_v2(0, 0, 0, &link));
    WANT(cuLinkAddData_v2(link, 6, (void *)PTX, sizeof PTX, "x", 0, 0, 0) == 1);
    WANT(cuLinkAddData_v2(link, 0, (void *)PTX, sizeof PTX, "x", 0, 0, 0) == 200);
    WANT(cuLinkAddData_v2(link, 1, "what", 5, "x", 0, 0, 0) == 218);
    WANT(cuLinkAddData_v2(link, 2, "what is this", 12, "x", 0, 0, 0) != 0);
    OK(cuLinkDestroy(link));

    /* .reqntid is what a block has; parameters come in one way. */
    unsigned n = 1;
    size_t size = 4;
    void *params[] = {&n};
    void *extra[] = {(void *)1, &n, (void *)2, &size, 0};
    OK(cuModuleLoadData(&module, PTX));
    CUfunction fixed = function(module, "fixed");
    OK(cuLaunchKernel(fixed, 1, 1, 1, 8, 4, 1, 0, 0, params, 0));
    OK(cuLaunchKernel(fixed, 1, 1, 1, 8, 4, 1, 0, 0, 0, extra));
    WANT(cuLaunchKernel(fixed, 1, 1, 1, 8, 4, 1, 0, 0, params, extra) == 1);
    WANT(cuLaunchKernel(fixed, 1, 1, 1, 32, 1, 1, 0, 0, params, 0) == 1);
    WANT(cuLaunchKernel(fixed, 1, 1, 1, 8, 2, 1, 0, 0, params, 0) == 1);
    WANT(cuFuncSetCacheConfig(fixed, 4) == 1 && cuFuncSetAttribute(fixed, 10, 1) == 1);

    /* Dynamic shared memory beyond 48 KiB has to be asked for first: without that nothing fits, and less is left. */
    int blocks, most;
    size_t left;
    OK(cuDeviceGetAttribute(&most, 97, 0));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fixed, 32, 50 << 10));
    WANT(blocks == 0);
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&left, fixed, 1, 32));
    WANT(left == 48 << 10);
    OK(cuFuncSetAttribute(fixed, 8, most));
    OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, fixed, 32, 50 << 10));
    WANT(blocks >= 1);
    OK(cuOccupancyAvailableDynamicSMemPerBlock(&left, fixed, 1, 32));
    WANT(left == (size_t)most);
    WANT(cuOccupancyAvailableDynamicSMemPerBlock(&left, fixed, 3, 1024) == 1);

    LaunchAttribute tomorrow = {.id = 99};
    LaunchConfig one = {.grid = {1, 1, 1}, .block = {8, 4, 1}, .attributes = &tomorrow, .count = 1};
    WANT(cuLaunchKernelEx(&one, fixed, params, 0) == 1);
    tomorrow.id = 8;
    OK(cuLaunchKernelEx(&one, fixed, params, 0));

    /* Who attaches to a context has to detach from it once more before it ends. */
    CUcontext mine, now;
    OK(cuCtxCreate_v2(&mine, 0, 0));
    OK(cuCtxAttach(&now, 0));
    WANT(now == mine);
    OK(cuCtxDetach(mine));
    OK(cuCtxGetCurrent(&now));
    WANT(now == mine);
    OK(cuCtxDetach(mine));
    OK(cuCtxGetCurrent(&now));
    WANT(now != mine);

    int major;
    OK(cuDeviceGetAttribute(&major, 75, 0));
    if (major >= 9) {
        OK(cuModuleLoadData(&module, CLUSTER));
        CUfunction f = function(module, "free"), two = function(module, "two");
        LaunchAttribute a = {.id = 4, .value.dim = {16, 1, 1}};
        LaunchConfig config = {.grid = {16, 1, 1}, .block = {1, 1, 1}, .attributes = &a, .count = 1};
        WANT(cuLaunchKernelEx(&config, f, 0, 0) == 912);
        OK(cuFuncSetAttribute(f, 14, 1));
        OK(cuLaunchKernelEx(&config, f, 0, 0));
        WANT(cuFuncSetAttribute(two, 11, 4) == 800);
        a.value.dim[0] = 4;
        WANT(cuLaunchKernelEx(&config, two, 0, 0) == 912);
        a.value.dim[0] = 2;
        OK(cuLaunchKernelEx(&config, two, 0, 0));
    }
    printf("done\n");
    return 0;
}
