// SPDX-License-Identifier: GPL-2.0-only
//! A fluid model of the CPUs: in it, all runnable tasks of a CPU run at the same time, each at a
//! speed in proportion to its weight. The lag of a task is the service that the model gave it,
//! minus the time for which it really ran.
//!
//! ```text
//! a task runs for dt    V += promised * dt / W       W: the weights of all tasks of the CPU
//! lag of each task      lag0 + w * (V - V0) - ran    V0: V when the task came to the CPU, or when
//!                                                        its weight changed; ran: since then
//! ```
//!
//! Invariant: the lags of the tasks that are on a CPU from V0 = V on add up to 0 if all of the time is
//! promised. V stands still while no task of the model runs: while the CPU is idle, and while a
//! higher class has it.
//!
//! Except: a task that is alone on its CPU has no negative lag, as no other task was due that time.
//!
//! A task that comes to a CPU has no lag; the lag of a task that leaves is forgotten. A change of
//! the weight keeps the lag. Nothing here depends on the virtual time of the BPF program.

use std::fmt;

use crate::dsq::TaskId;
use crate::native::FORGIVEN_PART;

/// The part of a CPU's time that the program divides by weight: short tasks may be ahead by the rest.
pub const PROMISED: f64 = 1.0 - 1.0 / FORGIVEN_PART as f64;

#[derive(Clone, Copy, Debug, Default)]
struct Server {
    /// V is current up to this time.
    at: u64,
    v: f64,
    weight: u64,
    /// The task that runs, and whether its time counts in V.
    running: Option<(TaskId, bool)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Client {
    /// The CPU; None: the task is not runnable.
    cpu: Option<usize>,
    weight: u64,
    v0: f64,
    lag0: f64,
    ran: u64,
}

impl Client {
    /// Return the lag on its CPU, whose V is current.
    fn lag(&self, server: &Server) -> f64 {
        self.lag0 + self.weight as f64 * (server.v - self.v0) - self.ran as f64
    }

    fn set_lag(&mut self, lag: f64, server: &Server) {
        (self.lag0, self.v0, self.ran) = (lag, server.v, 0);
    }
}

/// The largest lag of a run, in relation to its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Largest {
    pub of_bound: f64,
    /// Lag in slices of the scheduler's flags.
    pub slices: f64,
    pub lag_us: f64,
    pub task: TaskId,
    pub cpu: usize,
    pub at_us: u64,
}

impl fmt::Display for Largest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of_bound, slices, lag_us, task, cpu, at_us } = self;
        let ms = lag_us / 1000.0;
        write!(f, "{of_bound:.3} of the bound: {slices:.1} slices, {ms:.1} ms, task {task} on CPU {cpu} at {at_us} us")
    }
}

#[derive(Debug, Default)]
pub struct Fluid {
    servers: Vec<Server>,
    clients: Vec<Client>,
    pub largest: Largest,
    /// A lag above the bound is a violation.
    pub enforced: bool,
    /// The part of a CPU's time that is divided by weight.
    promised: f64,
}

impl Fluid {
    pub fn new(nr_cpus: usize, promised: f64, now: u64) -> Self {
        let servers = vec![Server { at: now, ..Server::default() }; nr_cpus];
        Self { servers, enforced: true, promised, ..Self::default() }
    }

    /// Forget all tasks; what was measured remains.
    pub fn restart(&mut self, nr_cpus: usize, now: u64) {
        let (largest, enforced) = (self.largest, self.enforced);
        *self = Self { largest, enforced, ..Self::new(nr_cpus, self.promised, now) };
    }

    /// Advance the CPU's V up to now.
    fn advance(&mut self, cpu: usize, now: u64) {
        let server = &mut self.servers[cpu];
        let dt = now - std::mem::replace(&mut server.at, now);
        let Some((task, counts)) = server.running.filter(|_| dt > 0) else { return };
        let client = &mut self.clients[task];
        if client.cpu == Some(cpu) {
            client.ran += dt;
            if counts {
                server.v += self.promised * dt as f64 / server.weight as f64;
            }
            let lag = client.lag(server);
            if client.weight == server.weight && lag < 0.0 {
                client.set_lag(0.0, server);
            }
        }
    }

    fn client(&mut self, task: TaskId) -> &mut Client {
        if self.clients.len() <= task {
            self.clients.resize(task + 1, Client::default());
        }
        &mut self.clients[task]
    }

    /// Set the task that runs on the CPU from now on. If it does not count, all other tasks lose
    /// nothing while it runs.
    pub fn run(&mut self, cpu: usize, task: Option<(TaskId, bool)>, now: u64) {
        if let Some((task, _)) = task {
            self.client(task);
        }
        self.advance(cpu, now);
        self.servers[cpu].running = task;
    }

    pub fn cpu(&self, task: TaskId) -> Option<usize> {
        self.clients.get(task).and_then(|client| client.cpu)
    }

    /// Set the CPU and the weight of a task. On another CPU it starts without lag.
    pub fn place(&mut self, task: TaskId, cpu: Option<usize>, weight: u64, now: u64) {
        let was = *self.client(task);
        if was.cpu == cpu {
            return self.reweigh(task, weight, now);
        }
        if let Some(from) = was.cpu {
            self.advance(from, now);
            self.servers[from].weight -= was.weight;
        }
        let mut client = Client { cpu, weight, ..Client::default() };
        if let Some(to) = cpu {
            self.advance(to, now);
            self.servers[to].weight += weight;
            client.v0 = self.servers[to].v;
        }
        self.clients[task] = client;
    }

    pub fn reweigh(&mut self, task: TaskId, weight: u64, now: u64) {
        let Some((cpu, was)) = self.clients.get(task).and_then(|client| Some((client.cpu?, client.weight))) else {
            return;
        };
        if was != weight {
            let lag = self.lag(task, now);
            self.servers[cpu].weight = self.servers[cpu].weight - was + weight;
            self.clients[task].set_lag(lag, &self.servers[cpu]);
            self.clients[task].weight = weight;
        }
    }

    /// Return the lag of a task, ns of CPU time; 0 if the task is not in the model.
    pub fn lag(&mut self, task: TaskId, now: u64) -> f64 {
        let Some(cpu) = self.cpu(task) else { return 0.0 };
        self.advance(cpu, now);
        self.clients[task].lag(&self.servers[cpu])
    }

    pub fn weights(&self, task: TaskId) -> (u64, u64) {
        self.cpu(task).map_or((0, 0), |cpu| (self.clients[task].weight, self.servers[cpu].weight))
    }
}
