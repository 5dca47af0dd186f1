/* Images of which bytes are wrong, and images that end before their headers say so, at the end of what the process has. The
   arguments are files; what cannot be loaded is told, and the process goes on. */
#define _DEFAULT_SOURCE
#include "driver.h"
#include <sys/mman.h>

static const char PTX[] = HEADER
    ".global .align 8 .b64 table[4] = {1, 2, 3, 4};\n"
    ".visible .entry seven(.param .u64 x)\n"
    "{\n"
    "  .reg .b64 %rd<3>;\n"
    "  ld.param.u64 %rd1, [x]; ld.global.u64 %rd2, [table+8]; st.global.u64 [%rd1], %rd2;\n"
    "  ret;\n"
    "}\n";

static uint64_t state = 88172645463325252u;
static uint64_t some(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

static unsigned refused, taken;

/* Loads an image that ends where the process has nothing more. */
static void try(const unsigned char *bytes, size_t size, size_t kept) {
    size_t hole = 65536, whole = (size + 4095) / 4096 * 4096;
    unsigned char *room = mmap(0, whole + hole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    WANT(room != MAP_FAILED);
    WANT(!munmap(room + whole, hole));
    unsigned char *at = room + whole - kept;
    memcpy(at, bytes, kept);
    CUmodule module;
    CUresult result = cuModuleLoadData(&module, at);
    if (result == 0) {
        taken++;
        OK(cuModuleUnload(module));
    } else {
        /* No image, none for this device, PTX that is none. */
        WANT(result == 200 || result == 209 || result == 218);
        refused++;
    }
    munmap(room, whole);
}

static void damage(const unsigned char *bytes, size_t size) {
    unsigned char *copy = malloc(size);
    /* Headers first: every byte of them, then bytes anywhere. */
    for (size_t i = 4; i < 160 && i < size; i += 3) {
        memcpy(copy, bytes, size);
        copy[i] ^= 0x80 | some(128);
        try(copy, size, size);
    }
    for (int i = 0; i < 150; i++) {
        memcpy(copy, bytes, size);
        for (uint64_t n = 1 + some(4); n > 0; n--)
            copy[4 + some(size - 4)] = some(256);
        try(copy, size, size);
    }
    unsigned before = refused;
    for (int i = 0; i < 20; i++)
        try(bytes, size, 64 + some(size - 64));
    WANT(refused == before + 20);
    free(copy);
}

int main(int argc, char **argv) {
    start();
    CUlinkState link;
    void *cubin;
    size_t size;
    OK(cuLinkCreate_v2(0, 0, 0, &link));
    OK(cuLinkAddData_v2(link, 1, (void *)PTX, sizeof PTX, "seven.ptx", 0, 0, 0));
    OK(cuLinkComplete(link, &cubin, &size));
    damage(cubin, size);
    for (int i = 1; i < argc; i++) {
        FILE *file = fopen(argv[i], "rb");
        WANT(file);
        unsigned char *bytes = malloc(1 << 20);
        damage(bytes, fread(bytes, 1, 1 << 20, file));
        fclose(file);
    }
    /* A wrapper that points nowhere, and one that points at itself. */
    uint64_t wrapper[3] = {0x146243b1, 12345, 0};
    wrapper[0] = 0x1466243b1;
    CUmodule module;
    WANT(cuModuleLoadData(&module, wrapper) == 200);
    wrapper[1] = (uint64_t)(uintptr_t)wrapper;
    WANT(cuModuleLoadData(&module, wrapper) == 200);
    WANT(refused > 0 && taken > 0);
    /* What is whole still works. */
    CUdeviceptr x;
    uint64_t back;
    OK(cuMemAlloc_v2(&x, 8));
    void *params[] = {&x};
    OK(cuLaunchKernel(function(load(PTX), "seven"), 1, 1, 1, 1, 1, 1, 0, 0, params, 0));
    OK(cuMemcpyDtoH_v2(&back, x, 8));
    WANT(back == 2);
    printf("done\n");
    return 0;
}
