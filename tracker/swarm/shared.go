package swarm

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"braid/tracker/wire"
)

// Shared is a Store in a Valkey or Redis server, for any number of trackers. Each announce is one
// script in the server (lua/), so that no other request comes in between. All times are of the
// server's clock. Swarms survive a restart of the trackers for the lifetime of a member, and a
// restart of the server if the server saves its data.
//
// While the server is away, visitors are refused at once and asked to come back. The connection
// recovers by itself.
type Shared struct {
	name   string // of the server, without password
	limits Limits
	client valkey.Client
	log    *slog.Logger
	// patience is sharedPatience, except in tests.
	patience time.Duration

	announce, claim, sweep, keep *valkey.Lua

	id    string // of this tracker's note
	mu    sync.Mutex
	err   error     // of the last attempt; nil if it worked
	again time.Time // when to try again after an error
	read  int64     // version of the newest note that Kept returned
}

const (
	// sharedPatience bounds one request to the server, and so how long a visitor waits.
	sharedPatience = 2 * time.Second
	// sharedPause is the time between attempts while the server is away. Other visitors are refused
	// meanwhile.
	sharedPause = time.Second
	// sharedStart bounds each wait at the start: for a connection, and then for the server or another
	// tracker that clears old data.
	sharedStart = 10 * time.Second
	// claimed is the number of swarms that one step of a sweep claims.
	claimed = 100
	// sharedPrefix begins all keys, and has the version of their content.
	sharedPrefix = "braid:2:"
)

// The scripts. swarmLua goes before announce and sweep.
var (
	//go:embed lua/swarm.lua
	swarmLua string
	//go:embed lua/announce.lua
	announceLua string
	//go:embed lua/claim.lua
	claimLua string
	//go:embed lua/sweep.lua
	sweepLua string
)

var _ Waiter = (*Shared)(nil)

// Waits implements Waiter.
func (*Shared) Waits() {}

// OpenShared connects to the server at redis://[user:password@]host:port/database, or rediss://
// with TLS. valkey:// and valkeys:// mean the same. The password, if not empty, replaces the one in
// the URL. Neither is ever logged.
func OpenShared(ctx context.Context, address, password string, l Limits, log *slog.Logger) (*Shared, error) {
	o, name, err := sharedOptions(address)
	if err != nil {
		return nil, err
	}
	if password != "" {
		o.Password = password
	}
	s := &Shared{
		name: name, limits: l.withDefaults(), log: log, patience: sharedPatience, id: rand.Text(),
		announce: valkey.NewLuaScriptRetryable(swarmLua + announceLua), claim: valkey.NewLuaScript(claimLua),
		sweep: valkey.NewLuaScript(swarmLua + sweepLua), keep: valkey.NewLuaScript(keepLua),
	}
	if s.client, err = valkey.NewClient(o); err != nil {
		return nil, fmt.Errorf("connect to the store %s: %w; "+
			"is the server running, and may this host use it?", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, sharedStart)
	defer cancel()
	if err := errors.Join(s.check(ctx), s.begin(ctx)); err != nil {
		s.client.Close()
		return nil, fmt.Errorf("use the store %s: %w", name, err)
	}
	return s, nil
}

// CheckStore returns an error if the address of a server is malformed; see OpenShared.
func CheckStore(address string) error {
	_, _, err := sharedOptions(address)
	return err
}

// sharedOptions reads the URL. Errors do not quote it, since any part may belong to a password.
func sharedOptions(address string) (valkey.ClientOption, string, error) {
	wrong := errors.New("store: want redis://host:port/database, or rediss:// for TLS; " +
		"user:password@ may precede the host, with %2F %3F %23 %40 for / ? # @ in the password")
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return valkey.ClientOption{}, "", wrong
	}
	o, err := valkey.ParseURL(address)
	if err != nil || u.Scheme == "unix" || o.SelectDB < 0 {
		return valkey.ClientOption{}, "", wrong
	}
	o.Dialer.Timeout, o.ConnWriteTimeout = sharedStart, sharedStart // the longest of all patience

	// Scripts use several keys, so a cluster is of no use.
	o.ForceSingleClient, o.DisableCache = true, true
	o.ReadBufferEachConn, o.WriteBufferEachConn = 64<<10, 64<<10
	o.RetryDelay = func(attempts int, _ valkey.Completed, _ error) time.Duration {
		if attempts > 2 { // enough for a broken connection; after that the visitor has to come back
			return -1
		}
		return time.Duration(attempts) * 20 * time.Millisecond
	}
	return o, fmt.Sprintf("%s://%s/%d", u.Scheme, o.InitAddress[0], o.SelectDB), nil
}

// check finds problems of the server before the first announce.
func (s *Shared) check(ctx context.Context) error {
	b := s.client.B()
	_, err := s.client.Do(ctx, b.Hrandfield().Key(sharedPrefix+"none").Count(1).Build()).AsStrSlice()
	if err != nil && !valkey.IsValkeyNil(err) {
		return fmt.Errorf("%w (the store must be Valkey, or Redis 6.2 or later)", err)
	}
	info, err := s.client.Do(ctx, b.Info().Section("memory").Build()).ToString()
	if err != nil {
		return err
	}
	has := func(line string) bool { return strings.Contains(info, "\n"+line) }
	if has("maxmemory_policy:") && !has("maxmemory_policy:noeviction") && !has("maxmemory:0\r") {
		s.log.Warn("the store forgets swarms when its memory is full; set its maxmemory-policy to noeviction",
			"store", s.name)
	}
	return nil
}

func sharedKey(name string) string { return sharedPrefix + name }

// begin clears old data if no tracker has used the store for a lifetime. If another tracker clears
// it already, begin waits for that.
func (s *Shared) begin(ctx context.Context) error {
	b := s.client.B
	alive, clearing := sharedKey("alive"), sharedKey("clearing")
	for {
		n, err := s.client.Do(ctx, b().Exists().Key(alive).Build()).AsInt64()
		if err != nil || n == 1 {
			return err
		}
		err = s.client.Do(ctx, b().Set().Key(clearing).Value("1").Nx().Ex(sharedStart).Build()).Error()
		if err == nil {
			break
		}
		if !valkey.IsValkeyNil(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("another tracker has begun to clear old data, and does not finish")
		case <-time.After(100 * time.Millisecond):
		}
	}
	for cursor := uint64(0); ; {
		scan := b().Scan().Cursor(cursor).Match(sharedPrefix + "*").Count(1000).Build()
		found, err := s.client.Do(ctx, scan).AsScanEntry()
		if err != nil {
			return err
		}
		var keys []string
		for _, k := range found.Elements {
			if k != clearing {
				keys = append(keys, k)
			}
		}
		if len(keys) > 0 {
			if err := s.client.Do(ctx, b().Unlink().Key(keys...).Build()).Error(); err != nil {
				return err
			}
		}
		if cursor = found.Cursor; cursor == 0 {
			break
		}
	}
	if err := s.alive(ctx); err != nil {
		return err
	}
	return s.client.Do(ctx, b().Del().Key(clearing).Build()).Error()
}

// alive marks the data as in use for the next lifetime.
func (s *Shared) alive(ctx context.Context) error {
	set := s.client.B().Set().Key(sharedKey("alive")).Value("1").Ex(s.limits.Lifetime).Build()
	return s.client.Do(ctx, set).Error()
}

// sharedAway is the refusal for visitors. A minute is the shortest time that BEP 31 can express.
var sharedAway = &wire.Failure{Reason: "the tracker's store is away; try again in a minute", RetryIn: time.Minute}

// try calls f. While the server is away it fails at once, except for one attempt every sharedPause.
func (s *Shared) try(ctx context.Context, f func(context.Context) error) error {
	s.mu.Lock()
	err, wait := s.err, false
	if err != nil {
		if wait = time.Now().Before(s.again); !wait {
			s.again = time.Now().Add(sharedPause) // for all others
		}
	}
	s.mu.Unlock()
	if wait {
		return fmt.Errorf("%w (%w)", sharedAway, err)
	}
	inner, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	err = f(inner)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() // the visitor has gone, which says nothing about the server
	}
	s.mu.Lock()
	before := s.err
	if s.err = err; err != nil {
		s.again = time.Now().Add(sharedPause)
	}
	s.mu.Unlock()
	switch {
	case err != nil && before == nil:
		s.log.Error("the store is away; announces are refused until it is back", "store", s.name, "error", err)
	case err == nil && before != nil:
		s.log.Warn("the store is back", "store", s.name)
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", sharedAway, err)
	}
	return nil
}

// Healthy is the error of the last request to the server, or nil.
func (s *Shared) Healthy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// keysOf are the keys of a torrent, in the order of lua/swarm.lua.
func keysOf(h wire.InfoHash) []string {
	swarm := sharedPrefix + string(h[:])
	return []string{
		swarm + ":4s", swarm + ":4o", swarm + ":6s", swarm + ":6o", swarm + ":ss", swarm + ":so", swarm + ":i",
		sharedKey("swarms"), sharedKey("totals"),
	}
}

func (s *Shared) lifetime() string {
	return strconv.FormatInt(int64(s.limits.Lifetime/time.Second), 10)
}

// Announce implements Store.
func (s *Shared) Announce(ctx context.Context, v Visit) (View, error) {
	var out View
	err := s.try(ctx, func(ctx context.Context) error {
		keys := keysOf(v.InfoHash)
		got, err := s.announce.Exec(ctx, s.client, keys, s.arguments(&v)).AsIntSlice()
		if err != nil {
			return err
		}
		if len(got) != announced {
			return fmt.Errorf("an answer of %d numbers", len(got))
		}
		out = View{Counts: countsOf(v.InfoHash, got[2], got[3], got[4], got[5])}
		refusals := [...]error{nil, ErrFull, ErrPerHost, ErrPerAS, ErrASShare, ErrNetworkShare}
		if got[0] > 0 && got[0] < int64(len(refusals)) {
			out.Refused = refusals[got[0]]
		}
		if v.Event != wire.Stopped {
			oldest := got[1] - int64(s.limits.Lifetime/time.Second)
			out.Peers, err = s.choose(ctx, &v, keys, [2 * kinds]int64(got[6:]), oldest)
		}
		return err
	})
	return out, err
}

// announced is the length of the answer of lua/announce.lua.
const announced = 12

// arguments are the arguments of lua/announce.lua.
func (s *Shared) arguments(v *Visit) []string {
	todo, kind, completed := "look", "l", "0"
	switch {
	case v.Event == wire.Stopped:
		todo = "leave"
	case v.Addr.Port != 0:
		todo = "enter"
	}
	switch {
	case v.Seed:
		kind = "s"
	case v.Event == wire.Paused:
		kind = "p"
	}
	if v.Event == wire.Completed {
		completed = "1"
	}
	identity := binary.BigEndian.AppendUint64(nil, v.Identity)
	return []string{
		s.lifetime(), string(v.InfoHash[:]), todo, strconv.Itoa(kindOf(v.Addr) + 1), string(v.Addr.AppendCompact(nil)),
		string(v.ID[:]), string(identity), kind, completed,
		strconv.Itoa(s.limits.PerHost), strconv.Itoa(s.limits.PerAS),
		strconv.Itoa(s.limits.Members), strconv.Itoa(s.limits.perASInAll()),
		strconv.Itoa(s.limits.PerNetwork), strconv.Itoa(s.limits.Members / reserveParts),
	}
}

func countsOf(h wire.InfoHash, complete, incomplete, partial, downloaded int64) wire.Counts {
	return wire.Counts{
		InfoHash: h, Complete: complete, Incomplete: incomplete,
		Downloaded: downloaded, Downloaders: incomplete - partial,
	}
}

// Scrape implements Store.
func (s *Shared) Scrape(ctx context.Context, hashes []wire.InfoHash) ([]wire.Counts, error) {
	var out []wire.Counts
	err := s.try(ctx, func(ctx context.Context) error {
		var all []valkey.Completed
		for _, h := range hashes {
			get := s.client.B().Hmget().Key(keysOf(h)[6]).Field("c", "n", "p", "d").Build()
			all = append(all, get.ToRetryable())
		}
		for i, r := range s.client.DoMulti(ctx, all...) {
			n, err := numbers(r)
			if err != nil {
				return err
			}
			out = append(out, countsOf(hashes[i], n[0], n[1], n[2], n[3]))
		}
		return nil
	})
	return out, err
}

// numbers reads an answer to HMGET. Missing fields are 0, and so are negative ones, which the
// scripts never write.
func numbers(r valkey.ValkeyResult) ([]int64, error) {
	all, err := r.ToArray()
	if err != nil {
		return nil, err
	}
	out := make([]int64, len(all))
	for i, m := range all {
		if m.IsNil() {
			continue
		}
		n, err := m.AsInt64()
		if err != nil {
			return nil, err
		}
		out[i] = max(n, 0)
	}
	return out, nil
}

// Sweep implements Store. The trackers share the work: one of them sweeps each swarm, four times in
// a lifetime. Answers leave out older members meanwhile.
func (s *Shared) Sweep(ctx context.Context) error {
	if err := s.try(ctx, s.alive); err != nil {
		return err
	}
	for {
		var due []string
		err := s.try(ctx, func(ctx context.Context) (err error) {
			keys := []string{sharedKey("swarms"), sharedKey("totals")}
			args := []string{s.lifetime(), strconv.Itoa(claimed)}
			due, err = s.claim.Exec(ctx, s.client, keys, args).AsStrSlice()
			return err
		})
		if err != nil {
			return err
		}
		for _, h := range due {
			if len(h) != len(wire.InfoHash{}) {
				return fmt.Errorf("the store has a swarm with a name of %d bytes: is it used for something else?",
					len(h))
			}
			if err := s.sweepOne(ctx, wire.InfoHash([]byte(h))); err != nil {
				return err
			}
		}
		if len(due) < claimed {
			return nil
		}
	}
}

func (s *Shared) sweepOne(ctx context.Context, h wire.InfoHash) error {
	place := []string{"1", "0"}
	for len(place) == 2 {
		err := s.try(ctx, func(ctx context.Context) (err error) {
			args := append([]string{s.lifetime(), string(h[:])}, place...)
			place, err = s.sweep.Exec(ctx, s.client, keysOf(h), args).AsStrSlice()
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Totals implements Store.
func (s *Shared) Totals(ctx context.Context) (Totals, error) {
	var out Totals
	err := s.try(ctx, func(ctx context.Context) error {
		b := s.client.B
		got := s.client.DoMulti(ctx, b().Zcard().Key(sharedKey("swarms")).Build(),
			b().Hmget().Key(sharedKey("totals")).Field("1", "2", "3", "s").Build())
		swarms, err := got[0].AsInt64()
		if err != nil {
			return err
		}
		n, err := numbers(got[1])
		if err != nil {
			return err
		}
		out = Totals{Swarms: int(swarms), IPv4: int(n[0]), IPv6: int(n[1]), SCION: int(n[2]), Seeds: int(n[3])}
		out.Members = out.IPv4 + out.IPv6 + out.SCION
		return nil
	})
	return out, err
}

// Close implements Store. The data stays for the other trackers.
func (s *Shared) Close() error {
	s.client.Close()
	return nil
}
