//go:build !unix

package main

import "os"

// followTerminal has nothing to follow: the next look sees the new size.
func followTerminal(...*printer) {}

// watchReader does nothing: writes notice that the reader has gone.
func (*printer) watchReader() {}

func foreground(*os.File) bool { return true }
