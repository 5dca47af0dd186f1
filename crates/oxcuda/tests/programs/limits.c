/* Sizes of printf's buffer and of the heap: until a kernel was launched that has need of them, and as said. */
#include "driver.h"

enum { PRINTF = 1, HEAP = 2 };

static const char PLAIN[] = HEADER ".visible .entry plain(.param .u64 out) { ret; }\n";
static const char SAYS[] = HEADER
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    ".global .align 1 .b8 text[4] = {104, 105, 10, 0};\n"
    ".func say()\n"
    "{\n"
    "  .reg .b64 %rd; .param .b64 f; .param .b64 a; .param .b32 r;\n"
    "  mov.u64 %rd, text; cvta.global.u64 %rd, %rd; st.param.b64 [f], %rd; st.param.b64 [a], 0;\n"
    "  call.uni (r), vprintf, (f, a);\n"
    "  ret;\n"
    "}\n"
    ".visible .entry says(.param .u64 out) { call.uni say; ret; }\n";
/* How many pieces of a MiB the heap gives, of 64 at most. */
static const char TAKES[] = HEADER
    ".extern .func (.param .b64 r) malloc(.param .b64 n);\n"
    ".visible .entry takes(.param .u64 out)\n"
    "{\n"
    "  .reg .b64 %o, %rd; .reg .b32 %n; .reg .pred %p; .param .b64 n; .param .b64 r;\n"
    "  ld.param.u64 %o, [out]; mov.u32 %n, 0;\n"
    "again:\n"
    "  st.param.b64 [n], 1048576;\n"
    "  call.uni (r), malloc, (n);\n"
    "  ld.param.b64 %rd, [r]; setp.eq.u64 %p, %rd, 0; @%p bra done;\n"
    "  add.u32 %n, %n, 1; setp.lt.u32 %p, %n, 64; @%p bra again;\n"
    "done: st.global.u32 [%o], %n;\n"
    "  ret;\n"
    "}\n";

static CUdeviceptr out;

static unsigned run(CUmodule module, const char *name) {
    unsigned back;
    void *params[] = {&out};
    OK(cuLaunchKernel(function(module, name), 1, 1, 1, 1, 1, 1, 0, 0, params, 0));
    OK(cuMemcpyDtoH_v2(&back, out, 4));
    return back;
}

int main(void) {
    CUcontext first, second;
    size_t size;
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&first, 0, 0));
    CUmodule plain = load(PLAIN), says = load(SAYS), takes = load(TAKES);
    OK(cuMemAlloc_v2(&out, 4));
    OK(cuCtxGetLimit(&size, HEAP));
    WANT(size == 8 << 20);
    OK(cuCtxSetLimit(HEAP, 20 << 20));
    run(plain, "plain");
    OK(cuCtxSetLimit(PRINTF, 1 << 16));
    run(says, "says");
    WANT(cuCtxSetLimit(PRINTF, 1 << 17) == 1);
    OK(cuCtxGetLimit(&size, PRINTF));
    WANT(size == 1 << 16);
    OK(cuCtxSetLimit(HEAP, 24 << 20));
    WANT(run(takes, "takes") == 24);
    WANT(cuCtxSetLimit(HEAP, 24 << 20) == 1);
    OK(cuCtxSetLimit(0, 2048));
    OK(cuCtxDestroy_v2(first));
    /* Another context has what holds where nothing was set. */
    OK(cuCtxCreate_v2(&second, 0, 0));
    takes = load(TAKES);
    OK(cuMemAlloc_v2(&out, 4));
    OK(cuCtxSetLimit(PRINTF, 1 << 18));
    WANT(run(takes, "takes") == 8);
    printf("done\n");
}
