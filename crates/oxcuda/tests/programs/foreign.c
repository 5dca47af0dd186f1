/* `make FILE [a|f]` writes a cubin for the device, with its features or its family's; `load FILE RESULT` loads it. */
#include "driver.h"

int main(int argc, char **argv) {
    char ptx[200];
    int sm[2];
    CUcontext context;
    CUmodule module;
    WANT(argc >= 3);
    OK(cuInit(0));
    OK(cuCtxCreate_v2(&context, 0, 0));
    if (!strcmp(argv[1], "load")) {
        WANT(cuModuleLoad(&module, argv[2]) == atoi(argv[3]));
    } else {
        CUlinkState link;
        void *cubin;
        size_t size;
        OK(cuDeviceGetAttribute(&sm[0], 75, 0));
        OK(cuDeviceGetAttribute(&sm[1], 76, 0));
        const char *suffix = argc > 3 ? argv[3] : "";
        snprintf(ptx, sizeof ptx, ".version 9.0\n.target sm_%d%d%s\n.address_size 64\n.visible .entry none() { ret; }\n",
                 sm[0], sm[1], suffix);
        OK(cuLinkCreate_v2(0, 0, 0, &link));
        OK(cuLinkAddData_v2(link, 1, ptx, strlen(ptx) + 1, "none", 0, 0, 0));
        OK(cuLinkComplete(link, &cubin, &size));
        FILE *file = fopen(argv[2], "wb");
        WANT(file && fwrite(cubin, 1, size, file) == size && !fclose(file));
        OK(cuLinkDestroy(link));
    }
    printf("done\n");
    return 0;
}
