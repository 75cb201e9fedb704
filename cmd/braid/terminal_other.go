//go:build !unix

package main

import "os"

// followTerminal has nothing to follow: the next look sees the new size.
func (p *printer) followTerminal() {}

func foreground(*os.File) bool { return true }
