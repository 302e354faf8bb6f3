//! Small pure functions from graph to graph.
