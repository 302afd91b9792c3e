//! Reading bitcode.
