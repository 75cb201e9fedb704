package files

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"braid/client"
)

// manyFiles is a torrent of empty files.
func manyFiles(t *testing.T, files int) client.Source {
	t.Helper()
	b := &strings.Builder{}
	b.WriteString("d4:infod5:filesl")
	for i := range files {
		fmt.Fprintf(b, "d6:lengthi0e4:pathl6:%06dee", i)
	}
	b.WriteString("e4:name1:n12:piece lengthi16384e6:pieces0:ee")
	src, err := client.ParseTorrent([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// Many clients at a time that list many files, and read slowly, cannot take all memory.
func TestLongListings(t *testing.T) {
	h := &handler{listing: make(chan struct{}, 1)}
	long, short := manyFiles(t, maxEntries+5), manyFiles(t, 3)
	gone, leave := context.WithCancel(t.Context())
	leave()
	ask := func(ctx context.Context, src client.Source) string {
		w := httptest.NewRecorder()
		h.list(src, "n/", w, httptest.NewRequestWithContext(ctx, "GET", "/", nil))
		return w.Body.String()
	}
	if got := ask(t.Context(), long); strings.Count(got, "<tr>") != maxEntries+1 ||
		!strings.Contains(got, "009999") || !strings.Contains(got, "and 5 more") {
		t.Errorf("a long listing has %d rows", strings.Count(got, "<tr>"))
	}
	h.listing <- struct{}{} // another one is being made
	if got := ask(gone, long); got != "" {
		t.Errorf("a second long listing at the same time, of %d bytes", len(got))
	}
	if got := ask(gone, short); strings.Count(got, "<tr>") != 4 {
		t.Errorf("a short listing: %q", got)
	}
	if out, more := entriesOf(long, "n"); len(out) != maxEntries || more != 5 || cap(out) > 2*maxEntries {
		t.Errorf("%d entries with room for %d, and %d more", len(out), cap(out), more)
	}
}
