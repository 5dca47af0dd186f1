//! The register maps of `-g` are true: in front of every statement of a kernel, each register of the PTX that the map has a
//! place for holds there what the PTX interpreter says, in every thread ([`oxsass::places`]).

use oxsass::places::{Compared, Debugged};
use sass::Target;
use sim::launch::LaunchFile;
use std::path::Path;

#[test]
fn registers_are_where_the_map_says() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut names: Vec<_> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "ptx"))
        .collect();
    names.sort();
    assert_eq!(names.len(), 23);
    let mut told = String::new();
    for path in &names {
        let name = path.file_stem().unwrap().to_string_lossy();
        let source = std::fs::read_to_string(path).unwrap();
        let mut launches =
            LaunchFile::parse(&std::fs::read_to_string(path.with_extension("toml")).unwrap()).unwrap().launch;
        // One block is enough.
        launches.truncate(1);
        launches.iter_mut().filter(|l| !l.cooperative && l.cluster.is_none()).for_each(|l| l.grid = [1; 3]);
        for sm in [75, 90, 120] {
            let debugged = Debugged::new(&source, Target::new(sm).unwrap());
            let debugged = debugged.unwrap_or_else(|e| panic!("{name} for sm_{sm}: {e}"));
            let mut done = Compared::default();
            for launch in &launches {
                let one = debugged.check(launch).unwrap_or_else(|e| panic!("{name} for sm_{sm}: {e:?}"));
                done.values += one.values;
                done.stops += one.stops;
            }
            told += &format!("{name} sm_{sm}: {} statements, {} values\n", done.stops, done.values);
            assert!(done.stops > 5 && done.values > 100, "{told}");
        }
    }
    println!("{told}");
}
