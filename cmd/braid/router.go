package main

// fastRouter is the command of the fast router, if this program has one.
func fastRouter(exe string) []string { return nil }
