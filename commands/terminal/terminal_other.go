//go:build !unix

package terminal

import "os"

// FollowTerminal has nothing to follow: the next look sees the new size.
func FollowTerminal(...*Printer) {}

// WatchReader does nothing: writes notice that the reader has gone.
func (*Printer) WatchReader() {}

func foreground(*os.File) bool { return true }
