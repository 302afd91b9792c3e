//! Tests on objects and programs that are made here.
