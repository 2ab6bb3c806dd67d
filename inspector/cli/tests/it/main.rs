//! The program `polylatch` as users run it, on real stores. One program: linking one for each file would take minutes.

mod cli;
mod cli_deadlock;
mod consul;
mod demo;
mod doctor;
mod exporter;
mod guide;
mod healthy_fleet;
mod idem;
mod layers;
mod mysql;
mod postgres;
mod redlock;
mod scenes;
mod shared;
mod views;
