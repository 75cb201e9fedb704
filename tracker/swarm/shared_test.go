package swarm_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"braid/tracker/swarm"
	"braid/tracker/swarm/valkeytest"
	"braid/tracker/wire"
	"braid/units/await"
)

func valkeyClient(t *testing.T, v *valkeytest.Server) valkey.Client {
	t.Helper()
	c, err := valkey.NewClient(valkey.ClientOption{
		InitAddress: []string{v.Addr}, ForceSingleClient: true, DisableCache: true,
		Dialer: net.Dialer{Deadline: await.Deadline(t)}, ConnWriteTimeout: time.Until(await.Deadline(t)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func openShared(t *testing.T, v *valkeytest.Server, l swarm.Limits) *swarm.Shared {
	t.Helper()
	s, err := swarm.OpenShared(t.Context(), "redis://"+v.Addr, "", l, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	s.BePatient()
	return s
}

// older makes all that is in the server as old as if the time had gone by: the server's clock
// cannot be moved.
const older = `
local by = tonumber(ARGV[1])
for _, key in ipairs(redis.call('KEYS', 'braid:2:*')) do
  local left = redis.call('TTL', key)
  if left >= 0 and left <= by then
    redis.call('DEL', key)
  else
    if left > by then redis.call('EXPIRE', key, left - by) end
    if string.match(key, ':[46s][so]$') then
      local all = redis.call('HGETALL', key)
      for i = 1, #all, 2 do
        local seen = struct.unpack('>I4', all[i + 1], 30)
        redis.call('HSET', key, all[i], string.sub(all[i + 1], 1, 29) .. struct.pack('>I4', seen - by))
      end
    elseif key == 'braid:2:swarms' then
      for _, hash in ipairs(redis.call('ZRANGE', key, 0, -1)) do redis.call('ZINCRBY', key, -by, hash) end
    end
  end
end`

func pass(t *testing.T, c valkey.Client, d time.Duration) {
	t.Helper()
	by := strconv.Itoa(int(d / time.Second))
	if err := c.Do(t.Context(), c.B().Eval().Script(older).Numkeys(0).Arg(by).Build()).Error(); err != nil && !valkey.IsValkeyNil(err) {
		t.Fatal(err)
	}
}

func TestShared(t *testing.T) {
	v := valkeytest.Start(t)
	c := valkeyClient(t, v)
	testStore(t, func(t *testing.T, f func(*testing.T)) { f(t) }, opener{
		open: func(t *testing.T, l swarm.Limits) swarm.Store {
			if err := c.Do(t.Context(), c.B().Flushall().Build()).Error(); err != nil {
				t.Fatal(err)
			}
			return openShared(t, v, l)
		},
		pass: func(t *testing.T, d time.Duration) { pass(t, c, d) },
	})
}

// What one tracker is told the other knows, and what both have forgotten leaves nothing behind.
func TestSharedByTwo(t *testing.T) {
	v := valkeytest.Start(t)
	one, two := openShared(t, v, swarm.Limits{}), openShared(t, v, swarm.Limits{})
	defer one.Close()
	defer two.Close()
	const peers = 400
	var wg sync.WaitGroup
	for i, s := range []*swarm.Shared{one, two} {
		wg.Go(func() {
			for n := range peers {
				x := visit(n)
				x.Addr.Port = uint16(10 + i)
				if _, err := s.Announce(context.Background(), x); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for _, s := range []*swarm.Shared{one, two} {
		if n, err := s.Totals(t.Context()); err != nil || n.Members != 2*peers || n.IPv4 != peers || n.SCION != peers || n.Swarms != 256 {
			t.Errorf("%+v, %v", n, err)
		}
	}
	if got, err := two.Announce(t.Context(), swarm.Visit{InfoHash: wire.InfoHash{1}, Want: 50, Reaches: swarm.IPv4}); err != nil || len(got.Peers) != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	for i, s := range []*swarm.Shared{two, one} { // each is told by the other
		for n := range peers {
			x := visit(n)
			x.Addr.Port, x.Event = uint16(10+i), wire.Stopped
			announce(t, s, x)
		}
	}
	c := valkeyClient(t, v)
	keys, err := c.Do(t.Context(), c.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil || len(keys) != 2 { // alive and totals
		t.Errorf("left over: %q, %v", keys, err)
	}
}

// Swarms that are larger than a script looks at in one go are swept whole.
func TestSharedSweepLarge(t *testing.T) {
	v := valkeytest.Start(t)
	c := valkeyClient(t, v)
	l := swarm.Limits{PerAS: 1 << 20, Lifetime: 10 * time.Minute}
	s := openShared(t, v, l)
	defer s.Close()
	const peers = 3000
	for n := range peers {
		x := visit(n)
		x.InfoHash = wire.InfoHash{1}
		announce(t, s, x)
	}
	pass(t, c, 11*time.Minute)
	stay := visit(5)
	stay.InfoHash = wire.InfoHash{1}
	announce(t, s, stay)
	// Who is too old is told to nobody, swept or not.
	if got, err := s.Announce(t.Context(), swarm.Visit{InfoHash: stay.InfoHash, Want: 50, Reaches: swarm.IPv4 | swarm.SCION}); err != nil || len(got.Peers) > 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Totals(t.Context()); err != nil || n.Members != 1 || n.Swarms != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	if got := counts(t, s, stay.InfoHash); got.Incomplete != 1 {
		t.Errorf("%+v", got)
	}
}

// Trackers that are away for less than a lifetime find what they knew; what is older is cleared, by
// one of them.
func TestSharedRestart(t *testing.T) {
	v := valkeytest.Start(t)
	c := valkeyClient(t, v)
	l := swarm.Limits{Lifetime: time.Hour}
	for _, tt := range []struct {
		away time.Duration
		want int
	}{{0, 0}, {50 * time.Minute, 1}, {61 * time.Minute, 0}} {
		pass(t, c, tt.away)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				s, err := swarm.OpenShared(context.Background(), "redis://"+v.Addr+"/0", "", l, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				s.BePatient()
				if n, err := s.Totals(context.Background()); err != nil || n.Members != tt.want {
					t.Errorf("away for %v: %+v, %v; want %d members", tt.away, n, err, tt.want)
				}
			})
		}
		wg.Wait()
		s := openShared(t, v, l)
		announce(t, s, visit(1))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Trackers on one store hear of each other's notes, once for each change, and of those of trackers
// that have gone, as long as they live.
func TestSharedNotes(t *testing.T) {
	v := valkeytest.Start(t)
	c := valkeyClient(t, v)
	l := swarm.Limits{Lifetime: 24 * time.Hour}
	one, two := openShared(t, v, l), openShared(t, v, l)
	defer one.Close()
	keep := func(s *swarm.Shared, note string) {
		t.Helper()
		if err := s.Keep(t.Context(), []byte(note), 2*time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(s *swarm.Shared, want ...string) {
		t.Helper()
		notes, err := s.Kept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range notes {
			got = append(got, string(n))
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	expect(one)
	keep(one, "of one\x00")
	keep(two, "of two")
	expect(one, "of two")
	expect(two, "of one\x00")
	expect(one)
	keep(two, "more of two")
	expect(one, "more of two")
	expect(two)
	if err := two.Close(); err != nil {
		t.Error(err)
	}
	three := openShared(t, v, l)
	defer three.Close()
	expect(three, "more of two", "of one\x00")
	keep(one, "")
	pass(t, c, time.Hour)
	keep(three, "of three")
	pass(t, c, 90*time.Minute)
	four := openShared(t, v, l)
	defer four.Close()
	expect(four, "of three")
	// A server that has forgotten all counts anew.
	keep(four, "of four")
	expect(one, "of four", "of three")
	if err := c.Do(t.Context(), c.B().Flushall().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	keep(four, "anew")
	expect(one, "anew")
	v.Stop()
	if _, err := one.Kept(t.Context()); err == nil {
		t.Error("notes of nobody")
	}
	if err := one.Keep(t.Context(), []byte("x"), time.Hour); err == nil {
		t.Error("kept by nobody")
	}
	if err := one.Healthy(); err != nil {
		t.Error("visitors are kept waiting because of notes: ", err)
	}
}

// A tracker waits ten seconds for its store when it starts, and when it writes a note. Only
// visitors are refused after two.
func TestSharedSlow(t *testing.T) {
	t.Parallel()
	v := valkeytest.Start(t)
	c := valkeyClient(t, v)
	slow := func(ms int64) {
		t.Helper()
		if err := c.Do(t.Context(), c.B().ClientPause().Timeout(ms).All().Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	slow(3000)
	s := openShared(t, v, swarm.Limits{})
	defer s.Close()
	s.BeImpatient()
	slow(100)
	if err := s.Keep(t.Context(), []byte("note"), time.Hour); err != nil {
		t.Error(err)
	}
}

// syncBuffer is a log that is read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// The server goes and comes back: peers are told so meanwhile, and the log once. A password is not
// in it.
func TestSharedAway(t *testing.T) {
	const secret = "open-sesame"
	v := valkeytest.Start(t, "--requirepass", secret)
	said := &syncBuffer{}
	log := slog.New(slog.NewTextHandler(said, nil))
	s, err := swarm.OpenShared(t.Context(), "redis://:wrong@"+v.Addr+"/3", secret, swarm.Limits{}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.BePatient()
	announce(t, s, visit(1))
	v.Stop()
	for range 20 {
		_, err := s.Announce(t.Context(), visit(2))
		var f *wire.Failure
		if !errors.As(err, &f) || f.RetryIn != time.Minute || !strings.Contains(f.Reason, "store") || strings.Contains(err.Error(), secret) {
			t.Fatalf("without a store: %v", err)
		}
	}
	if s.Healthy() == nil {
		t.Error("nothing is wrong, it says")
	}
	if _, err := s.Scrape(t.Context(), []wire.InfoHash{{1}}); err == nil {
		t.Error("a scrape without a store")
	}
	v.Restart()
	await.Success(t, "the server that comes back", func() error {
		_, err := s.Announce(t.Context(), visit(3))
		return err
	})
	if err := s.Healthy(); err != nil {
		t.Error(err)
	}
	// A visitor who does not wait for the answer is not taken for a server that is away.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Announce(gone, visit(4)); !errors.Is(err, context.Canceled) {
		t.Errorf("of a visitor that has gone: %v", err)
	}
	announce(t, s, visit(5))
	if text := said.String(); strings.Count(text, "store is away") != 1 || strings.Count(text, "store is back") != 1 || strings.Contains(text, secret) {
		t.Errorf("the log: %s", text)
	}
}

func TestSharedWrong(t *testing.T) {
	v := valkeytest.Start(t, "--requirepass", "open-sesame")
	for _, tt := range []struct{ url, says string }{
		{"", "redis://"},
		{"http://" + v.Addr, "redis://"},
		{"redis://:open/sesame@" + v.Addr, "redis://"},
		{"redis://sesame/open@" + v.Addr, "redis://"},
		{"redis://:sesame@" + v.Addr + "/x", "redis://"},
		{"redis://:sesame@" + v.Addr + "/0?db=sesame", "redis://"},
		{"unix://:sesame@/tmp/x", "redis://"},
		{"redis://:sesame@" + v.Addr, "WRONGPASS"},
		{"redis://" + v.Addr, "NOAUTH"},
		{"redis://:sesame@127.0.0.1:1/2", "connect to the store redis://127.0.0.1:1/2"},
	} {
		_, err := swarm.OpenShared(t.Context(), tt.url, "", swarm.Limits{}, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%q: %v", tt.url, err)
		}
	}
	said := &syncBuffer{}
	s, err := swarm.OpenShared(t.Context(), "redis://:open-sesame@"+valkeytest.Start(t, "--requirepass", "open-sesame", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru").Addr,
		"", swarm.Limits{}, slog.New(slog.NewTextHandler(said, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !strings.Contains(said.String(), "noeviction") {
		t.Errorf("nothing is said of eviction: %s", said)
	}
}
