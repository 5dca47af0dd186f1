//! Immediate dominators of a graph, by Lengauer and Tarjan ("A Fast Algorithm for Finding Dominators in a Flowgraph", 1979; the version
//! that compresses paths without balancing them): near-linear on any graph. Iterating over the blocks and meeting in the tree takes the
//! square of the blocks on deep ones with ways across.

/// No node: not reached from the root.
pub const NONE: u32 = u32::MAX;

/// The walk over the graph and what is known of its nodes, by the numbers that the walk gives them.
struct Search {
    /// The node with each number, and the number of each node.
    node: Vec<u32>,
    number: Vec<u32>,
    /// From where the walk came.
    parent: Vec<u32>,
    /// The least number from which a way leads here whose other nodes have greater numbers than this.
    semi: Vec<u32>,
    /// The forest of nodes that are done, with short cuts, and the node of the least `semi` on the way that was cut short.
    ancestor: Vec<u32>,
    label: Vec<u32>,
}

impl Search {
    /// Numbers what can be reached from `root`, as a walk in depth meets it.
    fn new(nodes: usize, root: usize, successors: impl Fn(usize, &mut dyn FnMut(usize))) -> Search {
        let mut search = Search {
            node: Vec::with_capacity(nodes),
            number: vec![NONE; nodes],
            parent: Vec::with_capacity(nodes),
            semi: Vec::new(),
            ancestor: Vec::new(),
            label: Vec::new(),
        };
        // Nodes to be visited, and from where; the last successor first.
        let mut stack = vec![(root, 0u32)];
        while let Some((at, from)) = stack.pop() {
            if search.number[at] != NONE {
                continue;
            }
            let number = search.node.len() as u32;
            search.number[at] = number;
            search.node.push(at as u32);
            search.parent.push(from);
            successors(at, &mut |s| {
                if search.number[s] == NONE {
                    stack.push((s, number));
                }
            });
        }
        let n = search.node.len() as u32;
        search.semi = (0..n).collect();
        search.label = (0..n).collect();
        search.ancestor = vec![NONE; n as usize];
        search
    }

    /// The node of the least `semi` on the way from `v` up to where its tree of the forest begins, that excluded.
    fn least(&mut self, v: u32, way: &mut Vec<u32>) -> u32 {
        if self.ancestor[v as usize] == NONE {
            return v;
        }
        let mut at = v;
        while self.ancestor[self.ancestor[at as usize] as usize] != NONE {
            way.push(at);
            at = self.ancestor[at as usize];
        }
        // From the top down: each gets what is best above it, and a short cut.
        while let Some(below) = way.pop() {
            let above = self.ancestor[below as usize] as usize;
            if self.semi[self.label[above] as usize] < self.semi[self.label[below as usize] as usize] {
                self.label[below as usize] = self.label[above];
            }
            self.ancestor[below as usize] = self.ancestor[above];
        }
        self.label[v as usize]
    }
}

/// The immediate dominator of each of `nodes` nodes, by the edges that lead out of them and those that lead into them: [`NONE`] for what is not
/// reached from `root`, and `root` for itself.
pub fn immediate(
    nodes: usize,
    root: usize,
    successors: impl Fn(usize, &mut dyn FnMut(usize)),
    predecessors: impl Fn(usize, &mut dyn FnMut(usize)),
) -> Vec<u32> {
    let mut search = Search::new(nodes, root, successors);
    let n = search.node.len();
    let mut idom = vec![0u32; n];
    // Nodes by the node that `semi` names, as linked lists: the first, and the next of each.
    let (mut first, mut next) = (vec![NONE; n], vec![NONE; n]);
    let mut way = Vec::new();
    for v in (1..n as u32).rev() {
        let mut semi = search.semi[v as usize];
        predecessors(search.node[v as usize] as usize, &mut |p| {
            let p = search.number[p];
            if p != NONE {
                let least = search.least(p, &mut way);
                semi = semi.min(search.semi[least as usize]);
            }
        });
        search.semi[v as usize] = semi;
        next[v as usize] = std::mem::replace(&mut first[semi as usize], v);
        let parent = search.parent[v as usize];
        search.ancestor[v as usize] = parent;
        let mut below = std::mem::replace(&mut first[parent as usize], NONE);
        while below != NONE {
            let least = search.least(below, &mut way);
            idom[below as usize] =
                if search.semi[least as usize] < search.semi[below as usize] { least } else { parent };
            below = next[below as usize];
        }
    }
    let mut out = vec![NONE; nodes];
    out[root] = root as u32;
    for v in 1..n {
        if idom[v] != search.semi[v] {
            idom[v] = idom[idom[v] as usize];
        }
        out[search.node[v] as usize] = search.node[idom[v] as usize];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: `a` is above `b` if nothing leads to `b` without `a`.
    fn by_definition(succs: &[Vec<usize>]) -> Vec<u32> {
        let n = succs.len();
        let reached = |without: usize| {
            let mut seen = vec![false; n];
            let mut stack = if without == 0 { vec![] } else { vec![0] };
            while let Some(i) = stack.pop() {
                if i != without && !std::mem::replace(&mut seen[i], true) {
                    stack.extend(&succs[i]);
                }
            }
            seen
        };
        let all = reached(n);
        let without: Vec<Vec<bool>> = (0..n).map(reached).collect();
        let above = |a: usize, b: usize| a == b || all[b] && !without[a][b];
        (0..n)
            .map(|b| match (b, all[b]) {
                (0, _) => 0,
                (_, false) => NONE,
                _ => {
                    let strict: Vec<usize> = (0..n).filter(|a| all[*a] && *a != b && above(*a, b)).collect();
                    let nearest = strict.iter().find(|a| strict.iter().all(|c| above(*c, **a)));
                    *nearest.expect("dominators of a node are a chain") as u32
                }
            })
            .collect()
    }

    #[test]
    fn random_graphs_have_the_dominators_of_the_definition() {
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for _ in 0..2_000 {
            let n = 1 + random(12);
            let mut succs = vec![Vec::new(); n];
            for _ in 0..random(3 * n + 1) {
                let (from, to) = (random(n), random(n));
                succs[from].push(to);
            }
            let mut preds = vec![Vec::new(); n];
            for (i, s) in succs.iter().enumerate() {
                s.iter().for_each(|t| preds[*t].push(i));
            }
            let found = immediate(
                n,
                0,
                |i, f| succs[i].iter().for_each(|s| f(*s)),
                |i, f| preds[i].iter().for_each(|p| f(*p)),
            );
            assert_eq!(found, by_definition(&succs), "{succs:?}");
        }
    }
}
