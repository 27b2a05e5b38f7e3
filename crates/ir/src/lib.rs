//! npumem's vocabulary: devices, graphs, programs, problems, plans and traces
