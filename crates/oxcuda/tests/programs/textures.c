/* A program against CUDA's own header: arrays, textures and surfaces. With an argument it does one thing that is wrong,
   and says what it was answered. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) WANT_RESULT(call, CUDA_SUCCESS)
#define WANT_RESULT(call, wanted)                                                                                      \
    do {                                                                                                               \
        CUresult result_ = (call);                                                                                     \
        if (result_ != (wanted)) {                                                                                     \
            const char *name_ = "?";                                                                                   \
            cuGetErrorName(result_, &name_);                                                                           \
            printf("%d: %s: %s\n", __LINE__, #call, name_);                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define WANT(what)                                                                                                     \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            printf("%d: not so: %s\n", __LINE__, #what);                                                               \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define BEGIN(name) ".visible .entry " name "(.param .u64 image, .param .u64 out, .param .f32 x, .param .f32 dx, .param .f32 y, .param .f32 z)\n"   \
    "{\n.reg .b64 %i, %o, %w; .reg .b32 %t, %n, %m, %a, %b, %c, %d; .reg .f32 %x, %y, %z, %f, %g, %h, %j;\n"              \
    "ld.param.u64 %i, [image]; ld.param.u64 %o, [out]; ld.param.f32 %x, [x]; ld.param.f32 %y, [dx];\n"                  \
    "mov.u32 %t, %tid.x; cvt.rn.f32.u32 %f, %t; fma.rn.f32 %x, %f, %y, %x;\n"                                            \
    "ld.param.f32 %y, [y]; ld.param.f32 %z, [z]; mul.wide.u32 %w, %t, 4; add.u64 %o, %o, %w;\n"                          \
    "cvt.rzi.u32.f32 %n, %z; cvt.rzi.s32.f32 %m, %y;\n"
#define END "ret;\n}\n"
#define PUT "st.global.f32 [%o], %f;\n"

static const char PTX[] =
    ".version 7.8\n.target sm_75\n.address_size 64\n"
    BEGIN("row") "tex.1d.v4.f32.f32 {%f, %g, %h, %j}, [%i, {%x}];\n" PUT END
    BEGIN("flat") "tex.2d.v4.f32.f32 {%f, %g, %h, %j}, [%i, {%x, %y}];\n" PUT END
    BEGIN("last") "tex.2d.v4.f32.f32 {%g, %h, %j, %f}, [%i, {%x, %y}];\n" PUT END
    BEGIN("volume") "tex.3d.v4.f32.f32 {%f, %g, %h, %j}, [%i, {%x, %y, %z, %z}];\n" PUT END
    BEGIN("layers") "tex.a2d.v4.f32.f32 {%f, %g, %h, %j}, [%i, {%n, %x, %y, %y}];\n" PUT END
    BEGIN("rows") "tex.a1d.v4.f32.f32 {%f, %g, %h, %j}, [%i, {%n, %x}];\n" PUT END
    BEGIN("cube") "tex.cube.v4.f32.f32 {%f, %g, %h, %j}, [%i, {%x, %y, %z, %z}];\n" PUT END
    BEGIN("level") "tex.level.2d.v4.f32.f32 {%f, %g, %h, %j}, [%i, {%x, %y}], %z;\n" PUT END
    BEGIN("numbers") "cvt.rzi.s32.f32 %a, %x; tex.1d.v4.s32.s32 {%a, %b, %c, %d}, [%i, {%a}];\n"
                     "st.global.u32 [%o], %a;\n" END
    BEGIN("width") "txq.width.b32 %a, [%i]; txq.height.b32 %b, [%i]; mad.lo.u32 %a, %a, 1000, %b; st.global.u32 [%o], %a;\n" END
    /* Surfaces: x counts texels of four bytes; what is there is doubled. */
    BEGIN("twice") "cvt.rzi.s32.f32 %a, %x; shl.b32 %a, %a, 2;\n"
                   "suld.b.2d.b32.trap {%b}, [%i, {%a, %m}]; add.u32 %b, %b, %b; sust.b.2d.b32.trap [%i, {%a, %m}], {%b};\n" END
    BEGIN("layer") "cvt.rzi.s32.f32 %a, %x; shl.b32 %a, %a, 2;\n"
                   "sust.b.a2d.b32.trap [%i, {%n, %a, %m, %m}], {%a};\n" END
    BEGIN("zero") "cvt.rzi.s32.f32 %a, %x; shl.b32 %a, %a, 2;\n"
                  "suld.b.2d.b32.zero {%b}, [%i, {%a, %m}]; sust.b.2d.b32.zero [%i, {%a, %m}], {%a}; st.global.u32 [%o], %b;\n" END
    BEGIN("mark") "mov.u32 %a, 0;\nsust.b.2d.b32.trap [%i, {%a, %a}], {%t};\n" END
    BEGIN("odd") "cvt.rzi.s32.f32 %a, %x;\nsust.b.2d.b32.trap [%i, {%a, %m}], {%a};\n" END;

enum { N = 16 };
static CUmodule module;
static CUdeviceptr out;
static float back[N];
static int whole[N];

static CUresult run(const char *name, unsigned long long image, int n, float x, float dx, float y, float z) {
    CUfunction f;
    OK(cuModuleGetFunction(&f, module, name));
    void *params[] = {&image, &out, &x, &dx, &y, &z};
    OK(cuLaunchKernel(f, 1, 1, 1, n, 1, 1, 0, 0, params, 0));
    CUresult result = cuMemcpyDtoH(back, out, sizeof back);
    memcpy(whole, back, sizeof back);
    return result;
}

static CUDA_RESOURCE_DESC of_array(CUarray a) {
    CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_ARRAY};
    r.res.array.hArray = a;
    return r;
}

static CUtexObject texture(CUDA_RESOURCE_DESC r, CUaddress_mode mode, CUfilter_mode filter, unsigned flags) {
    CUDA_TEXTURE_DESC t = {.addressMode = {mode, mode, mode}, .filterMode = filter, .flags = flags};
    CUtexObject made;
    OK(cuTexObjectCreate(&made, &r, &t, 0));
    return made;
}

static CUarray array(CUarray_format format, int channels, size_t w, size_t h, size_t d, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR s = {w, h, d, format, channels, flags}, told;
    CUarray a;
    OK(cuArray3DCreate(&a, &s));
    OK(cuArray3DGetDescriptor(&told, a));
    WANT(told.Width == w && told.Height == h && told.Depth == d && told.Format == format && told.NumChannels == channels &&
         told.Flags == flags);
    return a;
}

/* Between the host and a box of an array. */
static CUDA_MEMCPY3D box(CUarray a, void *host, size_t row, size_t w, size_t h, size_t d, int to) {
    CUDA_MEMCPY3D c = {.WidthInBytes = w, .Height = h, .Depth = d};
    if (to) {
        c.srcMemoryType = CU_MEMORYTYPE_HOST, c.srcHost = host, c.srcPitch = row, c.srcHeight = h;
        c.dstMemoryType = CU_MEMORYTYPE_ARRAY, c.dstArray = a;
    } else {
        c.dstMemoryType = CU_MEMORYTYPE_HOST, c.dstHost = host, c.dstPitch = row, c.dstHeight = h;
        c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = a;
    }
    return c;
}

static void lines(void) {
    /* 1, 3, 5 … in a row. */
    float texels[8];
    for (int i = 0; i < 8; i++)
        texels[i] = 1 + 2 * i;
    CUDA_ARRAY_DESCRIPTOR s = {8, 0, CU_AD_FORMAT_FLOAT, 1}, told;
    CUarray a;
    OK(cuArrayCreate(&a, &s));
    OK(cuArrayGetDescriptor(&told, a));
    WANT(told.Width == 8 && told.Height == 0 && told.NumChannels == 1);
    OK(cuMemcpyHtoA(a, 0, texels, sizeof texels));
    float part[2];
    OK(cuMemcpyAtoH(part, a, 8, 8));
    WANT(part[0] == 5 && part[1] == 7);
    WANT_RESULT(cuMemcpyAtoH(part, a, 28, 8), CUDA_ERROR_INVALID_VALUE);
    CUtexObject t = texture(of_array(a), CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
    OK(run("row", t, N, -1.5f, 0.75f, 0, 0));
    for (int i = 0; i < N; i++) {
        float x = -1.5f + 0.75f * i;
        int n = x < 0 ? 0 : x >= 8 ? 7 : (int)x;
        WANT(back[i] == texels[n]);
    }
    OK(cuTexObjectDestroy(t));
    WANT_RESULT(cuTexObjectDestroy(t), CUDA_ERROR_INVALID_VALUE);
    /* Between two texels the weights are steps of 1/256. */
    t = texture(of_array(a), CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
    OK(run("row", t, N, 0.5f, 0.25f, 0, 0));
    for (int i = 0; i < N; i++)
        WANT(back[i] == 1 + 0.5f * i);
    /* With numbers from 0 to 1 the row repeats, or turns back. */
    CUtexObject wrap = texture(of_array(a), CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_POINT, CU_TRSF_NORMALIZED_COORDINATES);
    CUtexObject mirror = texture(of_array(a), CU_TR_ADDRESS_MODE_MIRROR, CU_TR_FILTER_MODE_POINT, CU_TRSF_NORMALIZED_COORDINATES);
    CUDA_RESOURCE_DESC r = of_array(a);
    CUDA_TEXTURE_DESC edge = {.addressMode = {3, 3, 3}, .borderColor = {-4, 0, 0, 0}}, again;
    CUtexObject border;
    OK(cuTexObjectCreate(&border, &r, &edge, 0));
    OK(cuTexObjectGetTextureDesc(&again, border));
    WANT(!memcmp(&edge, &again, sizeof edge));
    OK(cuTexObjectGetResourceDesc(&r, border));
    WANT(r.resType == CU_RESOURCE_TYPE_ARRAY && r.res.array.hArray == a);
    OK(run("row", wrap, N, -0.4375f, 0.125f, 0, 0));
    for (int i = 0; i < N; i++)
        WANT(back[i] == texels[(i + 4) % 8]);
    OK(run("row", mirror, N, 0.0625f, 0.125f, 0, 0));
    for (int i = 0; i < N; i++)
        WANT(back[i] == texels[i < 8 ? i : 15 - i]);
    OK(run("row", border, N, -3.5f, 1, 0, 0));
    for (int i = 0; i < N; i++)
        WANT(back[i] == (i < 4 || i >= 12 ? -4 : texels[i - 4]));
    OK(cuArrayDestroy(a));
    WANT_RESULT(cuArrayDestroy(a), CUDA_ERROR_INVALID_HANDLE);
}

static void memory(void) {
    /* What pointers lead to: a row of integers, and rows of bytes that stand for numbers up to 1. */
    CUdeviceptr p;
    size_t pitch;
    int numbers[6] = {7, -1, 9, 1 << 30, 4, 5};
    OK(cuMemAlloc(&p, sizeof numbers));
    OK(cuMemcpyHtoD(p, numbers, sizeof numbers));
    CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_LINEAR};
    r.res.linear.devPtr = p, r.res.linear.format = CU_AD_FORMAT_SIGNED_INT32, r.res.linear.numChannels = 1;
    r.res.linear.sizeInBytes = sizeof numbers;
    CUtexObject t = texture(r, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
    OK(run("numbers", t, 8, 0, 1, 0, 0));
    for (int i = 0; i < 8; i++)
        WANT(whole[i] == (i < 6 ? numbers[i] : 0));
    r.res.linear.devPtr = p + 4;
    CUDA_TEXTURE_DESC plain = {.filterMode = 0};
    WANT_RESULT(cuTexObjectCreate(&t, &r, &plain, 0), CUDA_ERROR_INVALID_VALUE);
    r.res.linear.devPtr = p, r.res.linear.sizeInBytes = 1 << 20;
    WANT_RESULT(cuTexObjectCreate(&t, &r, &plain, 0), CUDA_ERROR_INVALID_VALUE);

    OK(cuMemAllocPitch(&p, &pitch, 12, 3, 4));
    unsigned char bytes[3][12];
    for (int i = 0; i < 36; i++)
        bytes[i / 12][i % 12] = i % 4 == 3 ? 255 : 5 * i;
    CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = bytes, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                       .dstDevice = p, .dstPitch = pitch, .WidthInBytes = 12, .Height = 3};
    OK(cuMemcpy2D(&c));
    memset(&r, 0, sizeof r);
    r.resType = CU_RESOURCE_TYPE_PITCH2D, r.res.pitch2D.devPtr = p, r.res.pitch2D.pitchInBytes = pitch;
    r.res.pitch2D.format = CU_AD_FORMAT_UNSIGNED_INT8, r.res.pitch2D.numChannels = 4;
    r.res.pitch2D.width = 3, r.res.pitch2D.height = 3;
    t = texture(r, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
    OK(run("flat", t, 3, 0.5f, 1, 1.5f, 0));
    for (int i = 0; i < 3; i++)
        WANT(back[i] == bytes[1][4 * i] / 255.0f);
    OK(run("last", t, 3, 0.5f, 1, 2.5f, 0));
    WANT(back[0] == 1 && back[2] == 1);
    OK(run("width", t, 1, 0, 0, 0, 0));
    WANT(whole[0] == 3003);
    r.res.pitch2D.pitchInBytes = pitch + 4;
    WANT_RESULT(cuTexObjectCreate(&t, &r, &plain, 0), CUDA_ERROR_INVALID_VALUE);
}

static void shapes(void) {
    /* 5 × 3 × 4 numbers as a volume, as layers, and as rows; a part of them is copied back. */
    float texels[4][3][5], part[2][2][3];
    for (int i = 0; i < 60; i++)
        texels[i / 15][i / 5 % 3][i % 5] = i;
    CUarray volume = array(CU_AD_FORMAT_FLOAT, 1, 5, 3, 4, 0);
    CUarray layers = array(CU_AD_FORMAT_FLOAT, 1, 5, 3, 4, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST);
    CUarray rows = array(CU_AD_FORMAT_FLOAT, 1, 5, 0, 4, CUDA_ARRAY3D_LAYERED);
    CUDA_MEMCPY3D c = box(volume, texels, 20, 20, 3, 4, 1);
    OK(cuMemcpy3D(&c));
    c.srcMemoryType = CU_MEMORYTYPE_ARRAY, c.srcArray = volume, c.dstArray = layers;
    OK(cuMemcpy3D(&c));
    c = box(rows, texels, 60, 20, 1, 4, 1);
    OK(cuMemcpy3D(&c));
    c = box(layers, part, 12, 12, 2, 2, 0);
    c.srcXInBytes = 4, c.srcY = 1, c.srcZ = 2;
    OK(cuMemcpy3D(&c));
    for (int i = 0; i < 12; i++)
        WANT(part[i / 6][i / 3 % 2][i % 3] == texels[2 + i / 6][1 + i / 3 % 2][1 + i % 3]);
    c.srcZ = 3;
    WANT_RESULT(cuMemcpy3D(&c), CUDA_ERROR_INVALID_VALUE);
    c.srcZ = 0, c.srcXInBytes = 2;
    WANT_RESULT(cuMemcpy3D(&c), CUDA_ERROR_INVALID_VALUE);
    CUtexObject t = texture(of_array(volume), CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
    OK(run("volume", t, 5, 0.5f, 1, 2.5f, 3.5f));
    for (int i = 0; i < 5; i++)
        WANT(back[i] == texels[3][2][i]);
    /* In the middle of eight. */
    t = texture(of_array(volume), CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0);
    OK(run("volume", t, 1, 1, 1, 1, 1));
    WANT(back[0] == (0 + 1 + 5 + 6 + 15 + 16 + 20 + 21) / 8.0f);
    t = texture(of_array(layers), CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
    for (int z = 0; z < 4; z++) {
        OK(run("layers", t, 5, 0.5f, 1, 1.5f, z));
        for (int i = 0; i < 5; i++)
            WANT(back[i] == texels[z][1][i]);
    }
    /* Two of the four layers, as integers. */
    CUDA_RESOURCE_DESC r = of_array(layers);
    CUDA_TEXTURE_DESC plain = {.addressMode = {1, 1, 1}};
    CUDA_RESOURCE_VIEW_DESC view = {.format = CU_RES_VIEW_FORMAT_FLOAT_1X32, .width = 5, .height = 3, .depth = 4,
                                    .firstLayer = 1, .lastLayer = 2}, seen;
    OK(cuTexObjectCreate(&t, &r, &plain, &view));
    OK(cuTexObjectGetResourceViewDesc(&seen, t));
    WANT(!memcmp(&view, &seen, sizeof view));
    OK(run("layers", t, 5, 0.5f, 1, 0.5f, 1));
    WANT(back[3] == texels[2][0][3]);
    view.format = CU_RES_VIEW_FORMAT_UINT_2X32;
    WANT_RESULT(cuTexObjectCreate(&t, &r, &plain, &view), CUDA_ERROR_INVALID_VALUE);
    view.format = CU_RES_VIEW_FORMAT_UNSIGNED_BC1;
    WANT_RESULT(cuTexObjectCreate(&t, &r, &plain, &view), CUDA_ERROR_NOT_SUPPORTED);
    t = texture(of_array(rows), CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
    OK(run("rows", t, 5, 0.5f, 1, 0, 3));
    WANT(back[4] == texels[3][0][4]);
    CUsurfObject s;
    OK(cuSurfObjectCreate(&s, &r));
    CUDA_RESOURCE_DESC told;
    OK(cuSurfObjectGetResourceDesc(&told, s));
    WANT(told.res.array.hArray == layers);
    OK(run("layer", s, 5, 0, 1, 2, 3));
    int integers[5];
    c = box(layers, integers, 20, 20, 1, 1, 0);
    c.srcY = 2, c.srcZ = 3;
    OK(cuMemcpy3D(&c));
    WANT(integers[0] == 0 && integers[4] == 16);
    r = of_array(volume);
    WANT_RESULT(cuSurfObjectCreate(&s, &r), CUDA_ERROR_INVALID_VALUE);
    OK(cuArrayDestroy(volume));
    OK(cuArrayDestroy(layers));

    /* The faces of a cube hold their numbers; x leads to the first two, y to the next. */
    float faces[6][2][2];
    for (int i = 0; i < 24; i++)
        faces[i / 4][i / 2 % 2][i % 2] = i / 4;
    CUarray cube = array(CU_AD_FORMAT_FLOAT, 1, 2, 2, 6, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_SURFACE_LDST);
    c = box(cube, faces, 8, 8, 2, 6, 1);
    OK(cuMemcpy3D(&c));
    t = texture(of_array(cube), CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, CU_TRSF_NORMALIZED_COORDINATES);
    OK(run("cube", t, 2, -1, 2, 0.25f, 0.25f));
    WANT(back[0] == 1 && back[1] == 0);
    OK(run("cube", t, 1, 0.25f, 0, -1, 0.25f));
    WANT(back[0] == 3);
    CUDA_ARRAY3D_DESCRIPTOR wrong = {2, 3, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP};
    WANT_RESULT(cuArray3DCreate(&cube, &wrong), CUDA_ERROR_INVALID_VALUE);
    wrong = (CUDA_ARRAY3D_DESCRIPTOR){2, 2, 0, CU_AD_FORMAT_FLOAT, 3, 0};
    WANT_RESULT(cuArray3DCreate(&cube, &wrong), CUDA_ERROR_INVALID_VALUE);
    wrong.NumChannels = 1, wrong.Flags = CUDA_ARRAY3D_SPARSE;
    WANT_RESULT(cuArray3DCreate(&cube, &wrong), CUDA_ERROR_NOT_SUPPORTED);
    wrong.Flags = 0, wrong.Width = 1 << 20;
    WANT_RESULT(cuArray3DCreate(&cube, &wrong), CUDA_ERROR_INVALID_VALUE);
}

static void levels(void) {
    /* Each level holds its number, written through a surface; so many levels are there as the size allows. */
    CUDA_ARRAY3D_DESCRIPTOR s = {8, 4, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SURFACE_LDST}, told;
    CUmipmappedArray m;
    CUarray level[4];
    OK(cuMipmappedArrayCreate(&m, &s, 99));
    for (int n = 0; n < 4; n++) {
        OK(cuMipmappedArrayGetLevel(&level[n], m, n));
        OK(cuArray3DGetDescriptor(&told, level[n]));
        WANT(told.Width == 8 >> n && told.Height == (4 >> n ? 4 >> n : 1) && told.Depth == 0);
        float texels[32];
        for (int i = 0; i < 32; i++)
            texels[i] = n;
        CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = texels, .srcPitch = 32,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = level[n], .WidthInBytes = 4 * told.Width,
                           .Height = told.Height};
        OK(cuMemcpy2D(&c));
    }
    WANT_RESULT(cuMipmappedArrayGetLevel(&level[0], m, 4), CUDA_ERROR_INVALID_VALUE);
    WANT_RESULT(cuArrayDestroy(level[0]), CUDA_ERROR_INVALID_VALUE);
    CUDA_RESOURCE_DESC r = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY};
    r.res.mipmap.hMipmappedArray = m;
    CUDA_TEXTURE_DESC d = {.addressMode = {1, 1, 1}, .mipmapFilterMode = CU_TR_FILTER_MODE_LINEAR,
                           .maxMipmapLevelClamp = 99};
    CUtexObject t;
    WANT_RESULT(cuTexObjectCreate(&t, &r, &d, 0), CUDA_ERROR_INVALID_VALUE);
    d.flags = CU_TRSF_NORMALIZED_COORDINATES;
    OK(cuTexObjectCreate(&t, &r, &d, 0));
    OK(run("level", t, 1, 0.5f, 0, 0.5f, 1));
    WANT(back[0] == 1);
    OK(run("level", t, 1, 0.5f, 0, 0.5f, 2.5f));
    WANT(back[0] == 2.5f);
    OK(run("level", t, 1, 0.5f, 0, 0.5f, 7));
    WANT(back[0] == 3);
    /* Levels are moved, bounded, and counted from another one on. */
    d.mipmapLevelBias = 0.5f, d.maxMipmapLevelClamp = 2;
    OK(cuTexObjectCreate(&t, &r, &d, 0));
    OK(run("level", t, 1, 0.5f, 0, 0.5f, 1));
    WANT(back[0] == 1.5f);
    OK(run("level", t, 1, 0.5f, 0, 0.5f, 3));
    WANT(back[0] == 2);
    CUDA_RESOURCE_VIEW_DESC view = {.width = 8, .height = 4, .firstMipmapLevel = 1, .lastMipmapLevel = 2};
    d.mipmapLevelBias = 0;
    OK(cuTexObjectCreate(&t, &r, &d, &view));
    OK(run("level", t, 1, 0.5f, 0, 0.5f, 0));
    WANT(back[0] == 1);
    OK(run("level", t, 1, 0.5f, 0, 0.5f, 9));
    WANT(back[0] == 2);
    d.maxAnisotropy = 4;
    WANT_RESULT(cuTexObjectCreate(&t, &r, &d, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(cuMipmappedArrayDestroy(m));
    WANT_RESULT(cuArray3DGetDescriptor(&told, level[1]), CUDA_ERROR_INVALID_HANDLE);
}

static void surfaces(const char *what) {
    int texels[3][4], again[3][4];
    for (int i = 0; i < 12; i++)
        texels[i / 4][i % 4] = i;
    CUarray a = array(CU_AD_FORMAT_SIGNED_INT32, 1, 4, 3, 0, CUDA_ARRAY3D_SURFACE_LDST);
    CUDA_MEMCPY3D c = box(a, texels, 16, 16, 3, 1, 1), d = box(a, again, 16, 16, 3, 1, 0);
    OK(cuMemcpy3D(&c));
    CUDA_RESOURCE_DESC r = of_array(a);
    CUsurfObject s;
    OK(cuSurfObjectCreate(&s, &r));
    CUresult result = CUDA_SUCCESS;
    if (!strcmp(what, "outside"))
        result = run("twice", s, 8, 0, 1, 1, 0);
    if (!strcmp(what, "odd"))
        result = run("odd", s, 4, 0, 1, 1, 0);
    if (!strcmp(what, "race"))
        result = run("mark", s, 64, 0, 0, 0, 0);
    if (!strcmp(what, "lanes"))
        result = run("mark", s, 32, 0, 0, 0, 0);
    if (!strcmp(what, "fresh")) {
        CUarray fresh = array(CU_AD_FORMAT_FLOAT, 1, 8, 4, 0, 0);
        CUDA_MEMCPY3D part = box(fresh, texels, 16, 16, 3, 1, 1);
        OK(cuMemcpy3D(&part));
        CUtexObject t = texture(of_array(fresh), CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0);
        result = run("flat", t, 8, 0.5f, 1, 1.5f, 0);
    }
    if (!strcmp(what, "gone")) {
        OK(cuArrayDestroy(a));
        result = run("twice", s, 4, 0, 1, 1, 0);
    }
    if (*what) {
        printf("%d\n", result);
        return;
    }
    OK(run("twice", s, 4, 0, 1, 1, 0));
    OK(run("zero", s, 8, -2, 1, 2, 0));
    for (int i = 0; i < 8; i++)
        WANT(whole[i] == (i < 2 || i >= 6 ? 0 : texels[2][i - 2]));
    OK(cuMemcpy3D(&d));
    for (int i = 0; i < 4; i++)
        WANT(again[0][i] == i && again[1][i] == 2 * (4 + i) && again[2][i] == 4 * i);
    /* The copy as a node of a graph, which is told as it was made. */
    CUgraph g;
    CUgraphNode n;
    CUgraphExec e;
    CUcontext context;
    CUDA_MEMCPY3D told;
    OK(cuCtxGetCurrent(&context));
    OK(cuGraphCreate(&g, 0));
    c.dstY = 1, c.Height = 2;
    OK(cuGraphAddMemcpyNode(&n, g, 0, 0, &c, context));
    OK(cuGraphMemcpyNodeGetParams(n, &told));
    WANT(told.dstMemoryType == CU_MEMORYTYPE_ARRAY && told.dstArray == a && told.dstY == 1 && told.Height == 2);
    OK(cuGraphInstantiate(&e, g, 0));
    OK(cuGraphLaunch(e, 0));
    OK(cuMemcpy3D(&d));
    WANT(again[1][3] == 3 && again[2][3] == 7);
    OK(cuSurfObjectDestroy(s));
    WANT_RESULT(cuSurfObjectDestroy(s), CUDA_ERROR_INVALID_VALUE);
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const char NAMED[] =
    ".version 7.8\n.target sm_75\n.address_size 64\n.global .texref picture;\n.global .texref numbers;\n.global .surfref words;\n"
    ".visible .entry named(.param .u64 out)\n{\n.reg .b64 %o, %w; .reg .b32 %t, %s, %a, %b, %c, %d; .reg .f32 %x, %y, %f, %g, %h, %j;\n"
    "ld.param.u64 %o, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, 16; add.u64 %o, %o, %w; cvt.rn.f32.u32 %x, %t; mov.f32 %y, 0f00000000;\n"
    "tex.2d.v4.f32.f32 {%f, %g, %h, %j}, [picture, {%x, %y}]; st.global.f32 [%o], %f;\n"
    "tex.1d.v4.s32.s32 {%a, %b, %c, %d}, [numbers, {%t}]; st.global.u32 [%o+4], %a;\n"
    "shl.b32 %s, %t, 2; suld.b.1d.b32.zero {%b}, [words, {%s}]; st.global.u32 [%o+8], %b;\n"
    "add.u32 %b, %b, 1; sust.b.1d.b32.zero [words, {%s}], {%b}; ret;\n}\n";

/* Names that a module has for textures and surfaces: what is bound when a kernel is launched counts. */
static void references(void) {
    CUmodule m;
    CUfunction f;
    CUtexref picture, numbers, again_;
    CUsurfref words;
    CUarray first, second, row, told;
    CUaddress_mode mode;
    CUfilter_mode filter;
    CUarray_format format;
    CUdeviceptr data, address, to;
    unsigned flags;
    int channels;
    size_t offset;
    float pixels[2][8];
    int integers[8], results[8][4];
    CUDA_ARRAY_DESCRIPTOR flat = {8, 2, CU_AD_FORMAT_FLOAT, 1};
    CUDA_ARRAY3D_DESCRIPTOR line = {8, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST};
    OK(cuModuleLoadData(&m, NAMED));
    OK(cuModuleGetFunction(&f, m, "named"));
    OK(cuModuleGetTexRef(&picture, m, "picture"));
    OK(cuModuleGetTexRef(&numbers, m, "numbers"));
    OK(cuModuleGetTexRef(&again_, m, "picture"));
    OK(cuModuleGetSurfRef(&words, m, "words"));
    WANT(again_ == picture && picture != numbers);
    WANT_RESULT(cuModuleGetTexRef(&again_, m, "words"), CUDA_ERROR_NOT_FOUND);
    WANT_RESULT(cuModuleGetTexRef(&again_, m, "nothing"), CUDA_ERROR_NOT_FOUND);
    WANT_RESULT(cuModuleGetTexRef(&again_, module, "picture"), CUDA_ERROR_NOT_FOUND);
    for (int i = 0; i < 8; i++) {
        pixels[0][i] = (float)i + 0.5f, pixels[1][i] = 100;
        integers[i] = 7 * i - 3;
    }
    OK(cuArrayCreate(&first, &flat));
    OK(cuArrayCreate(&second, &flat));
    OK(cuArray3DCreate(&row, &line));
    for (int n = 0; n < 2; n++) {
        CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = pixels, .srcPitch = sizeof *pixels,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY, .dstArray = n ? second : first,
                           .WidthInBytes = sizeof *pixels, .Height = 2};
        OK(cuMemcpy2D(&c));
        for (int i = 0; i < 8; i++) pixels[0][i] += 32;
    }
    OK(cuMemcpyHtoA(row, 0, integers, sizeof integers));
    OK(cuMemAlloc(&data, sizeof integers));
    OK(cuMemcpyHtoD(data, integers, sizeof integers));
    WANT_RESULT(cuTexRefSetArray(picture, first, 0), CUDA_ERROR_INVALID_VALUE);
    OK(cuTexRefSetArray(picture, first, CU_TRSA_OVERRIDE_FORMAT));
    OK(cuTexRefGetArray(&told, picture));
    WANT(told == first);
    OK(cuTexRefSetAddressMode(picture, 0, CU_TR_ADDRESS_MODE_CLAMP));
    OK(cuTexRefSetAddressMode(picture, 1, CU_TR_ADDRESS_MODE_CLAMP));
    OK(cuTexRefGetAddressMode(&mode, picture, 0));
    WANT(mode == CU_TR_ADDRESS_MODE_CLAMP);
    OK(cuTexRefSetFilterMode(picture, CU_TR_FILTER_MODE_POINT));
    OK(cuTexRefGetFilterMode(&filter, picture));
    WANT(filter == CU_TR_FILTER_MODE_POINT);
    OK(cuTexRefSetFormat(numbers, CU_AD_FORMAT_SIGNED_INT32, 1));
    OK(cuTexRefSetFlags(numbers, CU_TRSF_READ_AS_INTEGER));
    OK(cuTexRefGetFlags(&flags, numbers));
    WANT(flags == CU_TRSF_READ_AS_INTEGER);
    OK(cuTexRefGetFormat(&format, &channels, numbers));
    WANT(format == CU_AD_FORMAT_SIGNED_INT32 && channels == 1);
    OK(cuTexRefSetAddress(&offset, numbers, data, sizeof integers));
    WANT(offset == 0);
    OK(cuTexRefGetAddress(&address, numbers));
    WANT(address == data);
    OK(cuSurfRefSetArray(words, row, 0));
    OK(cuSurfRefGetArray(&told, words));
    WANT(told == row);
    OK(cuMemAlloc(&to, sizeof results));
    void *given[] = {&to};
    for (int round = 0; round < 3; round++) {
        /* What was bound before a launch is not what is bound behind it. */
        if (round == 1) OK(cuTexRefSetArray(picture, second, CU_TRSA_OVERRIDE_FORMAT));
        if (round == 2) OK(cuTexRefSetFilterMode(picture, CU_TR_FILTER_MODE_LINEAR));
        OK(cuLaunchKernel(f, 1, 1, 1, 8, 1, 1, 0, 0, given, 0));
        OK(cuMemcpyDtoH(results, to, sizeof results));
        for (int i = 0; i < 8; i++) {
            float texel, seen = (float)i + 0.5f + (round ? 32 : 0);
            memcpy(&texel, &results[i][0], 4);
            /* Filtered, x is between two texels; below the first one there is that again. */
            if (round == 2) seen = i ? seen - 0.5f : seen;
            WANT(texel == seen && results[i][1] == integers[i] && results[i][2] == integers[i] + round);
        }
    }
    OK(cuModuleUnload(m));
    WANT(cuTexRefGetFlags(&flags, picture) != CUDA_SUCCESS);
    OK(cuMemFree(data));
    OK(cuMemFree(to));
    OK(cuArrayDestroy(first));
    OK(cuArrayDestroy(second));
    OK(cuArrayDestroy(row));
}

int main(int argc, char **argv) {
    CUcontext context;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, PTX));
    OK(cuMemAlloc(&out, sizeof back));
    OK(cuMemsetD32(out, 0, N));
    if (argc > 1) {
        surfaces(argv[1]);
        printf("done\n");
        return 0;
    }
    lines();
    memory();
    shapes();
    levels();
    surfaces("");
    references();
    OK(cuDevicePrimaryCtxRelease(0));
    printf("done\n");
}
