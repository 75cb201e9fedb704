// Package sqlite stands in for the SQLite adapter of github.com/anacrolix/torrent, and has no
// SQLite in it.
//
// The engine links SQLite for a default record of completed pieces that braid does not use. So does
// scionproto, for databases that its in-process daemon does use; two copies of the C library do not
// link into one program. braid's go.mod replaces the engine's with this package. Only what the
// engine calls is here.
package sqlite

import "errors"

// ErrNoSQLite is the answer to every call.
var ErrNoSQLite = errors.New("sqlite: not part of this program")

type (
	// Conn is a connection to a database.
	Conn struct{}
	// Stmt is a statement with a row of its result.
	Stmt struct{}
	// OpenFlags say how a database is opened.
	OpenFlags uint
)

// OpenConn fails.
func OpenConn(string, ...OpenFlags) (*Conn, error) { return nil, ErrNoSQLite }

// Close has nothing to close.
func (*Conn) Close() error { return nil }

// ColumnInt is never called: there are no rows.
func (*Stmt) ColumnInt(int) int { return 0 }
