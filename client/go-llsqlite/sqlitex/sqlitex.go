// Package sqlitex belongs to the package above it.
package sqlitex

import sqlite "github.com/go-llsqlite/adapter"

// Exec fails.
func Exec(*sqlite.Conn, string, func(*sqlite.Stmt) error, ...any) error {
	return sqlite.ErrNoSQLite
}

// ExecScript fails.
func ExecScript(*sqlite.Conn, string) error { return sqlite.ErrNoSQLite }
