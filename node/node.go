// Package node is the application layer: it stands above client and tracker, and below the programs
// that show what it does.
package node
