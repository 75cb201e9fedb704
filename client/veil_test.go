package client

import (
	"io"
	"math"
	"net"
	"testing"

	"github.com/anacrolix/torrent/mse"

	"braid/units/await"
)

// veiledConn is a connection with what is read and written put through an obfuscation.
type veiledConn struct {
	net.Conn
	rw io.ReadWriter
}

func (c veiledConn) Read(b []byte) (int, error)  { return c.rw.Read(b) }
func (c veiledConn) Write(b []byte) (int, error) { return c.rw.Write(b) }

func meetVeiled(t *testing.T, src Source, addr string) *rawPeer {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(await.Deadline(t)) // fails only when closed
	rw, _, err := mse.InitiateHandshake(c, src.InfoHash.Bytes(), nil, mse.CryptoMethodRC4)
	if err != nil {
		t.Fatal(err)
	}
	return greet(t, src, veiledConn{c, rw})
}

// An obfuscated connection is bound by the same filter.
func TestVeiledPeersAreBound(t *testing.T) {
	src, s, _ := hostileSeed(t)
	p := meetVeiled(t, src, s.Listening()[0].String())
	p.send(raw(msgHaveNone), interested, encode(msgRequest, block{1, 0, 16 << 10}))
	for {
		m, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		if m[0] == msgReject { // it was sent before the seed knew
			p.send(encode(msgRequest, block{1, 0, 16 << 10}))
		}
		if m[0] == msgPiece {
			break
		}
	}
	p.send(encode(msgRequest, block{0, 0, 128<<10 + 1}))
	p.dropped()
}

// A peer that takes obfuscated connections only is dialled again with one.
func TestDownloadFromVeiledSeed(t *testing.T) {
	t.Parallel()
	f := forgetful{fast: true, every: math.MaxInt}
	f.behind = func(c net.Conn, src Source) (net.Conn, error) {
		rw, _, err := mse.ReceiveHandshake(t.Context(), c, func(each func([]byte) bool) { each(src.InfoHash.Bytes()) },
			func(mse.CryptoMethod) mse.CryptoMethod { return mse.CryptoMethodRC4 })
		return veiledConn{c, rw}, err
	}
	src, data, at := seedForgetfully(t, 1<<20, f)
	fullDownload(t, src, data, at)
}
