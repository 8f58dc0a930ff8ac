//! Brings well-known data sets from their publishers into a local cache, checked by hash.
