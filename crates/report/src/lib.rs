//! Analysis of plans and traces, as text, JSON and pictures
