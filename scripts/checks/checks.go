// Package checks has tests of texts and of layout, which need neither a network nor a running braid:
// the layers of packages, documents and manuals, and what importing braid does to a process.
package checks
