//! Graphs: work with an order, done in one that keeps it.

use crate::driver::{self, Driver};
use crate::error::{Error, Result};
use crate::work::Work;

/// A node.
#[derive(Clone)]
pub struct Node {
    /// Its handle.
    pub handle: u64,
    /// The nodes that it comes after.
    pub after: Vec<u64>,
    /// What is done.
    pub work: Work,
    /// The child graph, for programs that ask.
    pub child: Option<u64>,
}

/// Something of the program's that is to be freed when nobody refers to it any more.
pub struct UserObject {
    /// The function that frees it, and its argument.
    pub free: (crate::ffi::HostFn, u64),
    /// How many refer to it.
    pub count: u32,
}

/// A graph.
#[derive(Clone, Default)]
pub struct Graph {
    /// Nodes in the order in which they were added.
    pub nodes: Vec<Node>,
    /// User objects, and how often it refers to them.
    pub objects: Vec<(u64, u32)>,
}

/// A graph ready to run.
#[derive(Clone)]
pub struct Exec {
    /// Nodes in the order in which they run; those of no effect are kept.
    pub nodes: Vec<(u64, Work)>,
    /// User objects, and how often it refers to them.
    pub objects: Vec<(u64, u32)>,
}

impl Graph {
    /// Adds a node.
    pub fn add(&mut self, after: &[u64], work: Work) -> Result<u64> {
        if after.iter().any(|a| !self.nodes.iter().any(|n| n.handle == *a)) {
            return Err(Error::INVALID_VALUE);
        }
        let handle = driver::fresh();
        self.nodes.push(Node { handle, after: after.to_vec(), work, child: None });
        Ok(handle)
    }

    /// Nodes in an order that keeps what comes after what.
    pub fn order(&self) -> Result<Vec<(u64, Work)>> {
        let mut rest: Vec<&Node> = self.nodes.iter().collect();
        let mut done: Vec<(u64, Work)> = Vec::new();
        while !rest.is_empty() {
            let ready = |n: &&Node| n.after.iter().all(|a| done.iter().any(|d| d.0 == *a));
            let next = rest.iter().position(ready).ok_or(Error::INVALID_VALUE)?;
            let node = rest.remove(next);
            done.push((node.handle, node.work.clone()));
        }
        Ok(done)
    }

    /// All pairs of a node and one that comes after it.
    pub fn edges(&self) -> Vec<(u64, u64)> {
        self.nodes.iter().flat_map(|n| n.after.iter().map(|a| (*a, n.handle))).collect()
    }
}

/// Lets go of user objects; frees those that nobody refers to any more, while nobody works on the state.
pub fn release(objects: &[(u64, u32)]) -> Result<()> {
    let mut free = Vec::new();
    driver::with(|d| {
        for (handle, count) in objects {
            let object = d.objects.get_mut(*handle)?;
            object.count = object.count.checked_sub(*count).ok_or(Error::INVALID_VALUE)?;
            if object.count == 0 {
                free.push(d.objects.remove(*handle)?.free);
            }
        }
        Ok(())
    })?;
    free.into_iter().for_each(|(f, data)| f.call(data));
    Ok(())
}

impl Driver {
    /// Refers to user objects.
    pub fn retain(&mut self, objects: &[(u64, u32)]) -> Result<()> {
        for (handle, count) in objects {
            let object = self.objects.get_mut(*handle)?;
            object.count = object.count.checked_add(*count).ok_or(Error::INVALID_VALUE)?;
        }
        Ok(())
    }

    /// The graph of a node, and its place.
    pub fn node(&mut self, handle: u64) -> Result<(&mut Graph, usize)> {
        let mut graphs = self.graphs.values_mut();
        let found = graphs.find_map(|g| {
            let at = g.nodes.iter().position(|n| n.handle == handle)?;
            Some((g, at))
        });
        found.ok_or(Error::INVALID_VALUE)
    }

    /// Adds a node to a graph.
    pub fn add_node(&mut self, graph: u64, after: &[u64], work: Work) -> Result<u64> {
        self.graphs.get_mut(graph)?.add(after, work)
    }

    /// Changes what a node of an executable graph does, to something of the same kind.
    pub fn set_node(&mut self, exec: u64, node: u64, work: Work) -> Result<()> {
        let nodes = &mut self.execs.get_mut(exec)?.nodes;
        let (_, old) = nodes.iter_mut().find(|n| n.0 == node).ok_or(Error::INVALID_VALUE)?;
        if std::mem::discriminant(old) != std::mem::discriminant(&work) {
            return Err(Error::INVALID_VALUE);
        }
        *old = work;
        Ok(())
    }
}
