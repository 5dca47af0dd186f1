#!/usr/bin/env python3
"""Writes a PTX module of floating-point operations on operands as they are, negated, as magnitudes, and both, for ptxas to say
which forms of instructions it gives them: signs.py OUT.ptx"""
import itertools
out=[]
def kernel(n, stmts):
    body=[]
    off=4096
    for s in stmts:
        body.append("{ "+s.replace("@O",str(off))+" }"); off+=16
    return f""".visible .entry k{n}(.param .u64 p, .param .f32 u, .param .f64 w, .param .u32 q) {{
.reg .b64 %o; .reg .f32 %x<4>, %u; .reg .f64 %d<4>, %w; .reg .pred %q; .reg .u32 %n;
ld.param.u64 %o, [p]; ld.param.f32 %u, [u]; ld.param.f64 %w, [w]; ld.param.u32 %n, [q];
ld.global.v2.f32 {{%x0, %x1}}, [%o]; ld.global.f32 %x2, [%o+8]; ld.global.v2.f64 {{%d0, %d1}}, [%o+16]; ld.global.f64 %d2, [%o+32];
ld.global.u32 %n, [%o+48]; setp.ne.u32 %q, %n, 0;
"""+"\n".join(body)+"\nret; }\n"
S=["","neg","abs","negabs"]
def sign(t,name,src,s):
    ftz=".ftz" if t=="f32.ftz" else ""
    b="f64" if t=="f64" else "f32"
    decl=f".reg .{b} {name}; "
    o=f"{ftz}.{b}"
    if s=="": return decl+f"mov.{b} {name}, {src}; "
    if s=="neg": return decl+f"neg{o} {name}, {src}; "
    if s=="abs": return decl+f"abs{o} {name}, {src}; "
    return decl+f".reg .{b} {name}t; abs{o} {name}t, {src}; neg{o} {name}, {name}t; "
st=[]
for t in("f32","f32.ftz","f64"):
    b="f64" if t=="f64" else "f32"; x="%d" if b=="f64" else "%x"; par="%w" if b=="f64" else "%u"
    imm={"f32":"0f40490fdb","f64":"0d400921fb54442d18"}[b]; im2={"f32":"0f3f800000","f64":"0d4000000000000000"}[b]
    ftz=".ftz" if t=="f32.ftz" else ""
    store=f"st.global.{b} [%o+@O], r;"
    for rnd in("rn","rz","rm","rp"):
        for sat in ("",".sat") if b=="f32" else ("",):
            for sa,sb in itertools.product(S,S):
                for B in (x+"1",par,imm,im2):
                    if B in(imm,im2) and sb: continue
                    if (rnd!="rn" or sat) and (B!=x+"1"): continue
                    for op in("add","mul"):
                        st.append(sign(t,"a",x+"0",sa)+(sign(t,"b",B,sb) if sb or B[0]=="%" else f".reg .{b} b; mov.{b} b, {B}; ")+f".reg .{b} r; {op}.{rnd}{ftz}{sat}.{b} r, a, b; "+store)
            for sa,sb,sc in itertools.product(S,S,S):
                if sb and sa: continue
                for B,C in ((x+"1",x+"2"),(par,x+"2"),(x+"1",par),(imm,x+"2"),(x+"1",imm),(x+"1",im2),(im2,x+"1")):
                    if (B in(imm,im2) and sb) or (C in (imm,im2) and sc): continue
                    if (rnd!="rn" or sat) and (B,C)!=(x+"1",x+"2"): continue
                    st.append(sign(t,"a",x+"0",sa)+sign(t,"b",B,sb)+sign(t,"c",C,sc)+f".reg .{b} r; fma.{rnd}{ftz}{sat}.{b} r, a, b, c; "+store)
    for cmp in("eq","ne","lt","le","gt","ge","equ","neu","ltu","leu","gtu","geu","num","nan"):
        for sa,sb in itertools.product(S,S):
            for B in (x+"1",par,imm,im2):
                if B in(imm,im2) and sb: continue
                for n in("","!"):
                    st.append(sign(t,"a",x+"0",sa)+sign(t,"b",B,sb)+f".reg .pred r; setp.{cmp}{ftz}.{b} r, a, b; @{n}r st.global.u32 [%o+@O], %n;")
                if B==x+"1":
                    for bo in("and","or","xor"):
                        st.append(sign(t,"a",x+"0",sa)+sign(t,"b",B,sb)+f".reg .pred r; setp.{cmp}.{bo}{ftz}.{b} r, a, b, %q; @r st.global.u32 [%o+@O], %n;")
    for op in("min","max"):
        for sa,sb in itertools.product(S,S):
            for B in (x+"1",par,imm):
                if B==imm and sb: continue
                st.append(sign(t,"a",x+"0",sa)+sign(t,"b",B,sb)+f".reg .{b} r; {op}{ftz}.{b} r, a, b; "+store)
    for sa,sb in itertools.product(S,S):
        for B in (x+"1",par,imm,im2):
            if B in(imm,im2) and sb: continue
            for n in ("%q",):
                st.append(sign(t,"a",x+"0",sa)+sign(t,"b",B,sb)+f".reg .{b} r; selp.{b} r, a, b, {n}; "+store)
                st.append(sign(t,"a",x+"0",sa)+sign(t,"b",B,sb)+f".reg .{b} r; selp.{b} r, b, a, {n}; "+store)
    for sa in S[1:]:
        for A in(x+"0",par):
            pre=sign(t,"a",A,sa)
            if b=="f32":
                for op in("rcp.approx","rsqrt.approx","sqrt.approx","sin.approx","cos.approx","ex2.approx","lg2.approx"):
                    st.append(pre+f".reg .f32 r; {op}{ftz}.f32 r, a; "+store)
                for r in("rni","rzi","rmi","rpi"): st.append(pre+f".reg .f32 r; cvt.{r}{ftz}.f32.f32 r, a; "+store)
                st.append(pre+f".reg .f64 r; cvt{ftz}.f64.f32 r, a; st.global.f64 [%o+@O], r;")
                st.append(pre+f".reg .b16 r; cvt.rn{ftz}.f16.f32 r, a; st.global.b16 [%o+@O], r;")
            else:
                for r in("rni","rzi","rmi","rpi"): st.append(pre+f".reg .f64 r; cvt.{r}.f64.f64 r, a; "+store)
                for r in("rn","rz","rm","rp"): st.append(pre+f".reg .f32 r; cvt.{r}.f32.f64 r, a; st.global.f32 [%o+@O], r;")
            for r in("rni","rzi","rmi","rpi"):
                for i in("s32","u32","s64","u64"):
                    # To 64 bits ptxas flushes in an instruction of its own, but not behind a sign.
                    if ftz and i[1:]=="64": continue
                    st.append(pre+f".reg .{i} r; cvt.{r}{ftz}.{i}.{b} r, a; st.global.{i} [%o+@O], r;")
def write(f,target,st):
    with open(f,"w") as o:
        o.write(f"//\n// Signs of floating-point operands: every operation with operands as they are, negated, as magnitudes, and both.\n//\n.version 8.0\n.target {target}\n.address_size 64\n")
        for n in range(0,len(st),120): o.write(kernel(n//120,st[n:n+120]))
import sys
print(len(st)); write(sys.argv[1],"sm_75",st)
