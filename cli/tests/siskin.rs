//! End-to-end tests of the command line.

mod adapters;
mod bench;
mod chat;
mod commands;
mod help;
mod manual;
mod models;
mod run;
mod serve;
mod train;
