//! How often values are used.

use cranelift_entity::SecondaryMap;
use ori::{Function, Name, Value};

/// Uses of each value, whole or in part: by instructions, conditions, and arguments of blocks.
pub fn count(func: &Function) -> SecondaryMap<Value, u32> {
    let mut uses: SecondaryMap<Value, u32> = func.per_value();
    for &b in &func.layout {
        let data = &func.blocks[b];
        for &i in &data.insts {
            func.insts[i].for_each_use(|n| {
                if let Some(v) = n.value() {
                    uses[v] += 1;
                }
            });
        }
        let passed = data.term.targets().into_iter().flat_map(|t| t.args.iter().copied());
        for v in data.term.used_name().and_then(Name::value).into_iter().chain(passed) {
            uses[v] += 1;
        }
    }
    uses
}
