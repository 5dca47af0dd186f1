#!/usr/bin/env python3
"""Statements on tensor memory whose checks (-g-tmem-access-check) differ, a kernel each, for sm_100a, 103a, 110a.

Usage: tensor_checks.py FOLDER
"""

import pathlib
import sys

STATEMENTS = [
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [m], a0;",
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [m], 64; ld.shared.b32 a0, [m];"
    " tcgen05.ld.sync.aligned.32x32b.x2.b32 {x0, x1}, [a0]; tcgen05.wait::ld.sync.aligned; st.global.v2.b32 [p], {x0, x1};"
    " tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; tcgen05.dealloc.cta_group::1.sync.aligned.b32 a0, 64;",
    "tcgen05.dealloc.cta_group::1.sync.aligned.b32 a0, a1;",
    "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [m], a0; ld.shared.b32 a2, [m];"
    " tcgen05.dealloc.cta_group::2.sync.aligned.b32 a2, a0;",
    "tcgen05.ld.sync.aligned.16x256b.x1.b32 {x0, x1, x2, x3}, [a0]; tcgen05.wait::ld.sync.aligned;"
    " st.global.v2.b32 [p], {x0, x1};",
    "tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {x0, x1}, [a0], 40; tcgen05.wait::ld.sync.aligned;"
    " st.global.v2.b32 [p], {x0, x1};",
    "ld.global.b32 x0, [p]; tcgen05.st.sync.aligned.32x32b.x1.b32 [a0], {x0}; tcgen05.wait::st.sync.aligned;",
    "tcgen05.cp.cta_group::1.128x256b [a0], db;",
    "tcgen05.cp.cta_group::2.32x128b.warpx4 [a0], db;",
    "tcgen05.shift.cta_group::1.down [a0];",
    "tcgen05.mma.cta_group::1.kind::f16 [a0], da, db, a1, q;",
    "tcgen05.mma.cta_group::2.kind::f16 [a0], [a2], db, a1, q;",
    "tcgen05.mma.sp.cta_group::2.kind::f16 [a0], [a2], db, [a3], a1, q;",
    "tcgen05.mma.ws.cta_group::1.kind::tf32 [a0], da, db, a1, q;",
    "tcgen05.mma.sp.cta_group::1.kind::f8f6f4 [a0], da, db, [a3], a1, q;",
    "tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [a0], da, db, a1, [a2], [a3], q;",
    "tcgen05.mma.sp.cta_group::2.kind::mxf4.block_scale [a0], da, db, [a3], a1, [a2], [a0], q;",
    "tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.block16 [a0], [a2], db, a1, [a2], [a3], q;",
    "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [m], 128; ld.shared.b32 a0, [m]; elect.sync _|q, -1;"
    " @q tcgen05.mma.cta_group::1.kind::f16 [a0], da, db, a1, 0;"
    " @q tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64 [db]; tcgen05.dealloc.cta_group::1.sync.aligned.b32 a0, 128;",
]

KERNEL = """.version 9.0
.target {target}
.address_size 64
.shared .align 16 .b8 m[1024];
.visible .entry k(.param .b32 p0, .param .b32 p1, .param .b32 p2, .param .b32 p3, .param .b64 p4, .param .b64 p5, .param .b64 p6)
{{
.reg .b32 x<4>, a0, a1, a2, a3; .reg .b64 p, da, db; .reg .pred q;
ld.param.b32 a0, [p0]; ld.param.b32 a1, [p1]; ld.param.b32 a2, [p2]; ld.param.b32 a3, [p3];
ld.param.b64 da, [p4]; ld.param.b64 db, [p5]; ld.param.b64 p, [p6]; setp.ne.b32 q, a3, 0;
{statement}
ret;
}}
"""

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for target in ["sm_100a", "sm_103a", "sm_110a"]:
    for n, statement in enumerate(STATEMENTS):
        text = KERNEL.format(target=target, statement=statement)
        (folder / f"tensor_checks_{n}.{target}.ptx").write_text(text)
