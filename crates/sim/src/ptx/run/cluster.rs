//! Clusters: blocks that may wait for each other.

use super::super::SimError;
use super::super::decode::unwritten;
use super::super::late::{self, Pending};
use super::super::thread::{Env, State, Thread};
use super::Block;
use crate::schedule::Dice;
use crate::tmem::Tmem;
use ::ptx::ast::FuncId;

/// The barrier that all blocks of a cluster share.
pub(super) const CLUSTER_BARRIER: u8 = 16;

/// A running cluster: its blocks, each with its coordinates, and their shared and tensor memory while another one runs.
pub(super) struct Cluster {
    blocks: Vec<([u32; 3], Block)>,
    shared: Vec<Vec<u8>>,
    tmem: Vec<Tmem>,
    pending: Vec<Pending>,
}

impl Cluster {
    pub(super) fn new(places: &[[u32; 3]], env: &Env<'_, '_>, kernel: FuncId) -> Cluster {
        let size = (env.program.shared + u64::from(env.launch.shared)) as usize;
        let blocks = places.iter().enumerate();
        let blocks = blocks.map(|(rank, at)| (*at, Block::new(env, kernel, rank as u32))).collect();
        let shared = vec![unwritten(env.program.fill, size, 0); places.len()];
        let tmem = vec![Tmem::new(env.program.fill.seed()); places.len()];
        Cluster { blocks, shared, tmem, pending: Vec::new() }
    }

    /// Hands its memories to those who run, or takes them back.
    fn swap(&mut self, env: &mut Env<'_, '_>) {
        std::mem::swap(&mut env.shared, &mut self.shared);
        std::mem::swap(&mut env.tmem, &mut self.tmem);
        std::mem::swap(&mut env.pending, &mut self.pending);
    }

    /// Gives every block a turn, and lets all go on that wait for the whole cluster.
    fn round(&mut self, env: &mut Env<'_, '_>, dice: &mut Dice) -> Result<(), SimError> {
        self.swap(env);
        for b in dice.order(self.blocks.len()) {
            let (at, block) = &mut self.blocks[b];
            env.ctaid = *at;
            block.round(env, dice)?;
        }
        self.swap(env);
        if self.elsewhere().is_none() {
            for t in self.blocks.iter_mut().flat_map(|b| &mut b.1.threads).filter(|t| waits(t)) {
                t.state = State::Ready;
                t.pc += 1;
            }
        }
        Ok(())
    }

    /// A thread that neither has exited nor waits for the whole cluster.
    fn elsewhere(&self) -> Option<(&[u32; 3], &Block, usize)> {
        let elsewhere = |t: &Thread| t.state != State::Exited && !waits(t);
        self.blocks.iter().find_map(|(at, b)| Some((at, b, b.threads.iter().position(elsewhere)?)))
    }
}

/// Whether a thread waits for the whole cluster.
fn waits(t: &Thread) -> bool {
    t.state == State::Barrier(CLUSTER_BARRIER)
}

/// Runs clusters, which take turns, to their end.
pub(super) fn run_clusters(
    clusters: &mut [Cluster],
    env: &mut Env<'_, '_>,
    dice: &mut Dice,
) -> Result<(), SimError> {
    while clusters.iter().flat_map(|c| &c.blocks).any(|(_, b)| b.live > 0) {
        let before = env.clock;
        clusters.iter_mut().try_for_each(|c| c.round(env, dice))?;
        if env.clock > env.limit {
            return Err(SimError::new(format!("stopped after {} instructions", env.limit)));
        }
        if env.clock == before
            && let Some((at, block, thread)) = clusters.iter().find_map(Cluster::elsewhere)
        {
            env.ctaid = *at;
            return Err(block.error(env, thread, "deadlock: every thread waits"));
        }
    }
    // What nobody waited for is done now.
    for c in clusters.iter_mut().filter(|c| !c.pending.is_empty()) {
        c.swap(env);
        let done = late::perform_all(env);
        c.swap(env);
        let first = &c.blocks[0];
        env.ctaid = first.0;
        done.map_err(|e| first.1.error(env, 0, e))?;
    }
    let left = clusters.iter().find_map(|c| {
        let rank = c.tmem.iter().position(Tmem::is_taken)?;
        c.blocks.get(rank)
    });
    match left {
        Some((at, _)) => {
            Err(SimError::new(format!("block {at:?} ends and has not given tensor memory back")))
        }
        None => Ok(()),
    }
}
