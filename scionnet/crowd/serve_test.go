package crowd

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// Serve answers requests that began before the context ended. It returns the error of a listener.
func TestServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		end()
		for { // until the server takes no more connections
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				break
			}
			c.Close()
		}
		_, _ = io.WriteString(w, "answer")
	})}
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, s, l, time.Hour) }()
	res, err := http.Get("http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); string(b) != "answer" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := Serve(t.Context(), &http.Server{}, l, 0); err == nil {
		t.Error("a closed listener is no error")
	}
}
