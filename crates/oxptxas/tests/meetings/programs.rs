//! Generated programs in which lanes part and meet.

/// Ends of the thread beside the last block.
const ENDS: u64 = 3;

/// The body of a program of 5 to 20 blocks, each of which changes a number and goes on to one of two others as that number says: to later
/// ones, or, at most 40 times in all, to earlier ones; of every third program also to ends of the thread, with stores before them or none.
pub fn graph(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let blocks = 5 + below(16);
    let mut body = String::from("mov.u32 %r2, %id; mov.u32 %r5, 0; st.global.u32 [%out+8], %id;\n");
    for b in 0..blocks {
        body += &format!("B{b}: mad.lo.u32 %r2, %r2, {}, {b};", 2 * below(1000) + 3);
        for _ in 0..below(5) {
            body += &format!(
                " shr.u32 %r3, %r2, {}; xor.b32 %r2, %r2, %r3; add.u32 %r2, %r2, {};",
                3 + below(20),
                below(99)
            );
        }
        if below(6) == 0 {
            body += " st.global.u32 [%out+8], %r2;";
        }
        if below(12) == 0 {
            body += " call calm, (%out);";
        }
        let later = |n: u64| (b + 1 + n % 4).min(blocks);
        let ways = [later(below(4)), later(below(8))];
        let [one, two] = ways.map(|to| match seed.is_multiple_of(3) && below(5) == 0 {
            true => format!("E{}", below(ENDS)),
            false => format!("B{to}"),
        });
        let back = below(b + 1);
        body += &format!(
            " shr.u32 %r4, %r2, {}; and.b32 %r4, %r4, {}; setp.eq.u32 %p4, %r4, 1;",
            5 + below(20),
            1 + 2 * below(2)
        );
        match below(5) {
            0 => {
                body += " add.u32 %r5, %r5, 1; setp.lt.and.u32 %p4, %r5, 40, %p4;";
                body += &format!(" @%p4 bra B{back}; bra {one};\n");
            }
            1 => body += &format!(" bra {one};\n"),
            _ => body += &format!(" @%p4 bra {one}; bra {two};\n"),
        }
    }
    body += &format!("B{blocks}: mov.u32 %r3, %r2;");
    if seed.is_multiple_of(2) && !seed.is_multiple_of(3) {
        body += " bar.warp.sync -1; shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;";
    }
    body += " st.global.u32 [%out], %r2; st.global.u32 [%out+4], %r3; st.global.u32 [%out+12], %r5; ret;\n";
    if seed.is_multiple_of(3) {
        for end in 0..ENDS {
            body += &format!("E{end}:");
            (0..2 * end).for_each(|k| body += &format!(" st.global.u32 [%out+{}], %r2;", 4 * (k % 4)));
            body += " ret;\n";
        }
    }
    body
}

/// The body of such a program: both arms have instructions of the same kinds in the same order.
pub fn rows(seed: u64, elects: bool) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 7;
    let mut below = |n: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    let kinds: Vec<u64> = (0..2 + below(4)).map(|_| below(if elects { 5 } else { 4 })).collect();
    let mut body = String::from("mov.u32 %r2, %id; mov.u32 %r5, 0; mov.u32 %r9, 0;\n");
    // Whole warps go one way in some rounds.
    let bits = [1, 2, 16, 32, 33, 40][below(6) as usize];
    body += &format!(
        "L: add.u32 %r6, %id, %r5; and.b32 %r6, %r6, {bits}; setp.ne.u32 %p4, %r6, 0; @%p4 bra A;\n"
    );
    for arm in 0..2 {
        if arm == 1 {
            body += "A:";
        }
        for kind in &kinds {
            let n = 1 + below(31);
            if below(3) > 0 {
                body += &format!(" mad.lo.u32 %r2, %r2, {}, {n};", 2 * below(1000) + 3);
            }
            body += &match kind {
                0 => format!(" shfl.sync.bfly.b32 %r3, %r2, {}, 31, -1;", 1 << (n % 5)),
                1 => " shfl.sync.idx.b32 %r3, %r2, 5, 31, -1;".to_string(),
                2 => " setp.lt.u32 %p5, %r2, %r9; vote.sync.ballot.b32 %r3, %p5, -1;".to_string(),
                3 => " setp.ne.u32 %p5, %r2, 3; vote.sync.any.pred %p6, %p5, -1; selp.b32 %r3, 5, 9, %p6;"
                    .to_string(),
                _ => " elect.sync %r3|%p5, -1; @%p5 add.u32 %r9, %r9, 7;".to_string(),
            };
            body += match below(3) {
                0 => " add.u32 %r2, %r2, %r3;",
                1 => " xor.b32 %r2, %r2, %r3; st.global.u32 [%out+8], %r3;",
                _ => " add.u32 %r9, %r9, %r3;",
            };
        }
        body += if arm == 0 { " bra E;\n" } else { "\n" };
    }
    body += &format!("E: add.u32 %r5, %r5, {}; setp.lt.u32 %p4, %r5, 40; @%p4 bra L;\n", 1 + 8 * below(3));
    body + "st.global.u32 [%out], %r2; st.global.u32 [%out+4], %r9; ret;\n"
}
