//go:build !unix

package main

import "os"

// followTerminal has nothing to follow: the next look sees the new size.
func followTerminal(...*printer) {}

func foreground(*os.File) bool { return true }
