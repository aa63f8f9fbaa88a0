// The object that the precompiled headers are made with.
