package scionnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"
)

func TestHTTP(t *testing.T) {
	h := oneAS(t)
	server, err := h.OpenHTTP(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	client, err := h.OpenHTTP(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	began := make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(ctx, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a, ok := ClientAddr(r.Context())
			if r.URL.Path == "/slow" {
				close(began)
				<-ctx.Done()
			}
			fmt.Fprint(w, a, ok, r.URL.RawQuery)
		}), 5*time.Second)
	}()
	tr := client.Client(server.Addr())
	get := func(url string) (string, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		res, err := tr.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return string(b), err
	}
	want := fmt.Sprint(client.Addr(), true, "q=1")
	for range 3 {
		if got, err := get("https://scion4-1-ff00-0-110_127-0-0-1:80/x?q=1"); got != want || err != nil {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
	}
	// What is under way when the server stops is still answered.
	slow := make(chan error, 1)
	go func() {
		got, err := get("https://x/slow")
		if got == "" {
			err = errors.Join(err, errors.New("no answer"))
		}
		slow <- err
	}()
	<-began
	stop()
	if err := errors.Join(<-slow, <-served); err != nil {
		t.Error(err)
	}
	if err := errors.Join(tr.Close(), client.Close(), server.Close()); err != nil {
		t.Error(err)
	}
}
