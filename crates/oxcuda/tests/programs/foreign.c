/* `make FILE` writes a cubin for the device, `load FILE RESULT` loads it. */
#include "driver.h"

int main(int argc, char **argv) {
    static const char PTX[] = HEADER ".visible .entry none() { ret; }\n";
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
        OK(cuLinkCreate_v2(0, 0, 0, &link));
        OK(cuLinkAddData_v2(link, 1, (void *)PTX, sizeof PTX, "none", 0, 0, 0));
        OK(cuLinkComplete(link, &cubin, &size));
        FILE *file = fopen(argv[2], "wb");
        WANT(file && fwrite(cubin, 1, size, file) == size && !fclose(file));
        OK(cuLinkDestroy(link));
    }
    printf("done\n");
    return 0;
}
