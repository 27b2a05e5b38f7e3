//! Memory on real devices behind one narrow trait
