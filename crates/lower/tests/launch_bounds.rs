//! The most registers of a kernel by its launch bounds, as MAXREG_COUNT of ptxas 13.0.88's cubins has them (12 targets × 1,488
//! combinations of directives and options were compared; these are of each kind).

use lower::Options;
use sass::Target;

#[test]
fn most_registers_by_launch_bounds() {
    let rows = [
        ("sm_80", "", 255),
        ("sm_80", ".maxnreg 16", 24),
        ("sm_80", ".maxnreg 100", 100),
        ("sm_80", ".minnctapersm 4", 255),
        // One block: as many as fit, unless there is a limit of its own.
        ("sm_80", ".maxntid 300", 168),
        ("sm_80", ".maxntid 1024", 64),
        ("sm_80", ".maxntid 300 .maxnreg 255", 255),
        ("sm_80", ".maxntid 1024 .maxnreg 128", 128),
        // Several promised ones: the smaller of both.
        ("sm_80", ".maxntid 1024 .minnctapersm 1 .maxnreg 128", 64),
        ("sm_90", ".maxntid 512 .minnctapersm 2 .maxnreg 128", 64),
        ("sm_75", ".maxntid 512 .minnctapersm 2 .maxnreg 40", 40),
        // All of their warps together come in fours.
        ("sm_80", ".maxntid 32 .minnctapersm 16", 128),
        ("sm_90", ".maxntid 64 .minnctapersm 8", 128),
        ("sm_80", ".maxntid 33 .minnctapersm 5", 168),
        ("sm_80", ".reqntid 32, 4, 2 .minnctapersm 3", 80),
        // Promises that cannot be kept, whole warps counted, say nothing.
        ("sm_75", ".maxntid 300 .minnctapersm 4", 168),
        ("sm_80", ".maxntid 100 .minnctapersm 20", 255),
        ("sm_120", ".maxntid 300 .minnctapersm 5", 168),
        ("sm_120", ".maxntid 300 .minnctapersm 5 .maxnreg 200", 200),
    ];
    for (arch, directives, most) in rows {
        let target = Target::parse(arch).unwrap();
        let source = format!(
            ".version 9.0\n.target {arch}\n.address_size 64\n.visible .entry k() {directives} {{ ret; }}\n"
        );
        let module = ptx::parse(&source).unwrap();
        let kernel = module.funcs.values().next().unwrap();
        assert_eq!(lower::max_regs(kernel, &Options::new(target)), most, "{arch} {directives}");
    }
}
