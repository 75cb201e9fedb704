package web

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"braid/node/web/qbittorrent"
	"braid/pathsel"
	"braid/units/lists"
)

// Access decides who may use the server:
//
//   - A request over the unix socket is the owner's.
//   - The Host of a request must be an IP address, localhost, a name of the list, or missing. A
//     page whose name was pointed at this machine (DNS rebinding) therefore gets nothing. On the
//     unix socket, any name without a dot is allowed, too, since programs make one up. Other names
//     are refused there as well: a user may forward the socket to a TCP port, which a browser can
//     reach.
//   - If a password is set, a request on TCP needs it, in Basic authentication with any user name,
//     or the cookie of a session.
//
// Its methods may be called from many goroutines.
type Access struct {
	hosts []string // allowed names in lower case; "*" allows all
	file  string   // of the password's hash
	cost  int      // iterations of a new hash

	hashing chan struct{} // bounds the processor time that passwords take
	seal    [32]byte      // key of proven

	mu       sync.Mutex
	password *hashed // nil: none is set
	proven   []byte  // a MAC of the last right password, so that Basic authentication is cheap
	sessions map[string]session
	failures map[string]*failing // by networkOf
}

type session struct{ made, used time.Time }

// ownCookie is the name of the cookie with a session. It has the port that the client uses:
// browsers send a cookie to all ports of a host, and another daemon may listen there.
func ownCookie(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return cookieName + "-" + port
	}
	return cookieName
}

// cookies are the names of all cookies that may have a session.
func cookies(r *http.Request) []string {
	return []string{ownCookie(r), cookieName, qbittorrent.Cookie}
}

// failing is a network of clients that have sent wrong passwords.
type failing struct {
	limit *rate.Limiter
	last  time.Time
}

const (
	cookieName  = "braid"
	maxSessions = 256
	sessionIdle = 7 * 24 * time.Hour
	sessionLife = 90 * 24 * time.Hour
	maxPassword = 1024 // bytes; hashing more would only take time

	// A network may send failuresAtOnce wrong passwords, and then one each failureEvery.
	failuresAtOnce = 10
	failureEvery   = 10 * time.Second
	maxNetworks    = 4096
	// hashesAtOnce is how many passwords are checked at a time. More would take all processors.
	hashesAtOnce = 2
)

// The reasons for which a login fails.
var (
	ErrPassword = errors.New("wrong password")
	ErrTooOften = errors.New("too many wrong passwords: wait a minute")
)

// OpenAccess reads the hash of the password from a file, if there is one. Names are further allowed
// hosts: mirror.example.org, *.example.org for all names below it, or * for any.
func OpenAccess(file string, names []string) (*Access, error) {
	a := &Access{
		file: file, cost: iterations, hashing: make(chan struct{}, hashesAtOnce),
		sessions: map[string]session{}, failures: map[string]*failing{},
		hosts: lists.Map(names, strings.ToLower),
	}
	_, _ = rand.Read(a.seal[:]) // never fails
	return a, a.Reload()
}

// Reload reads the file again. Sessions end if the password is another one.
func (a *Access) Reload() error {
	h, err := readHash(a.file)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !h.equal(a.password) {
		a.replace(h)
	}
	return nil
}

// replace replaces the password, and ends all sessions. The caller holds mu.
func (a *Access) replace(h *hashed) {
	a.password, a.proven = h, nil
	clear(a.sessions)
}

// SetPassword sets the password, or removes it if it is empty. All sessions end.
func (a *Access) SetPassword(password string) error {
	if len(password) > maxPassword {
		return errors.New("the password is longer than 1024 bytes")
	}
	var h *hashed
	if password != "" {
		h = hash(password, a.cost)
	}
	if err := writeHash(a.file, h); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replace(h)
	return nil
}

// HasPassword tells whether a password is set.
func (a *Access) HasPassword() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.password != nil
}

// Login begins a session if the password is right, and sets its cookie. If the name of the cookie
// is empty, it is braid-PORT. The errors are ErrPassword and ErrTooOften.
func (a *Access) Login(w http.ResponseWriter, r *http.Request, cookie, password string) error {
	if err := a.verify(r, password); err != nil {
		return err
	}
	token := rand.Text()
	now := time.Now()
	a.mu.Lock()
	if len(a.sessions) >= maxSessions {
		delete(a.sessions, first(a.sessions, func(s session) time.Time { return s.used }))
	}
	a.sessions[token] = session{now, now}
	a.mu.Unlock()
	setCookie(w, cmp.Or(cookie, ownCookie(r)), token, sessionLife)
	return nil
}

// setCookie sets a cookie for a time, or removes it if the time is negative.
func setCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name:     name,
		Value:    value,
		Path:     "/",
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
		MaxAge:   int(age.Seconds()),
	})
}

// Logout ends the session of a request.
func (a *Access) Logout(w http.ResponseWriter, r *http.Request) {
	for _, name := range cookies(r) {
		c, err := r.Cookie(name)
		if err != nil {
			continue
		}
		a.mu.Lock()
		delete(a.sessions, c.Value)
		a.mu.Unlock()
		setCookie(w, name, "", -time.Second)
	}
}

// Allowed tells whether the request may use routes that need the password. If not, the error says
// why: ErrPassword also if none was sent. A stream asks again as long as it is open.
func (a *Access) Allowed(r *http.Request) error {
	switch {
	case a.IsOwner(r) || a.inSession(r):
		return nil
	case !a.HasPassword():
		if !isLocal(r) { // it was removed
			return ErrNeedsPassword
		}
		return nil
	}
	if _, password, ok := r.BasicAuth(); ok {
		return a.verify(r, password)
	}
	return ErrPassword
}

func (a *Access) inSession(r *http.Request) bool {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range cookies(r) {
		c, err := r.Cookie(name)
		if err != nil {
			continue
		}
		s, ok := a.sessions[c.Value]
		if ok && now.Sub(s.used) < sessionIdle && now.Sub(s.made) < sessionLife {
			s.used = now
			a.sessions[c.Value] = s
			return true
		}
		delete(a.sessions, c.Value)
	}
	return false
}

// verify checks a password. Wrong ones count against the network of the client.
func (a *Access) verify(r *http.Request, password string) error {
	if len(password) > maxPassword {
		return ErrPassword
	}
	mac := hmac.New(sha256.New, a.seal[:])
	mac.Write([]byte(password))
	sum := mac.Sum(nil)
	if a.unproven(sum) == nil {
		return nil
	}
	select {
	case a.hashing <- struct{}{}:
	case <-r.Context().Done():
		return ErrTooOften
	}
	defer func() { <-a.hashing }()
	want := a.unproven(sum) // another request may have proven the password meanwhile
	switch {
	case want == nil:
		return nil
	case !a.mayTry(r):
		return ErrTooOften
	case !want.matches(password):
		return ErrPassword
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.password == want {
		a.proven = sum
	}
	delete(a.failures, networkOf(r)) // who knows the password may mistype it again
	return nil
}

// unproven returns the hash to check a password against. sum is the MAC of that password. The hash
// is nil if the password is known to be right, or if none is set.
func (a *Access) unproven(sum []byte) *hashed {
	a.mu.Lock()
	defer a.mu.Unlock()
	if hmac.Equal(a.proven, sum) {
		return nil
	}
	return a.password
}

// mayTry counts an attempt of the client's network, and tells whether it is allowed. It is counted
// before the password is checked, so that many attempts at the same time cannot pass.
func (a *Access) mayTry(r *http.Request) bool {
	network, now := networkOf(r), time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.failures[network]
	if f == nil {
		if len(a.failures) >= maxNetworks {
			delete(a.failures, first(a.failures, func(f *failing) time.Time { return f.last }))
		}
		f = &failing{limit: rate.NewLimiter(rate.Every(failureEvery), failuresAtOnce)}
		a.failures[network] = f
	}
	f.last = now
	return f.limit.AllowN(now, 1)
}

// first returns the key of the value with the earliest time.
func first[K comparable, V any](all map[K]V, at func(V) time.Time) K {
	earlier := func(a, b K) int { return at(all[a]).Compare(at(all[b])) }
	return slices.MinFunc(slices.Collect(maps.Keys(all)), earlier)
}

// networkOf returns the network of a client: see pathsel.Origin. Clients on the unix socket are one.
func networkOf(r *http.Request) string {
	a, _ := netip.ParseAddrPort(r.RemoteAddr) // fails on the unix socket
	return pathsel.OriginIP(a.Addr(), "").Net
}

// Refuse answers a request that Allowed or Login has refused, with a challenge for programs. A
// browser's script gets none, since the browser would ask for the password in its own way.
func (a *Access) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrTooOften):
		w.Header().Set("Retry-After", "60")
		deny(w, r, http.StatusTooManyRequests, err.Error())
	case r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Method == http.MethodGet:
		http.Redirect(w, r, "/", http.StatusSeeOther) // the page asks for the password
	default:
		// Over plain HTTP from another machine, browsers do not send Sec-Fetch-Site.
		isScript := r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("X-Requested-With") != "" ||
			r.Header.Get("Accept") == "text/event-stream"
		if !isScript {
			w.Header().Set("WWW-Authenticate", `Basic realm="braid", charset="UTF-8"`)
		}
		deny(w, r, http.StatusUnauthorized, "a password is needed")
	}
}

// allowsHost tells whether a request to its host is answered. Browsers always name a host, so no
// site can make a browser send a request without it.
func (a *Access) allowsHost(r *http.Request) bool {
	host := r.Host
	if host == "" || a.IsOwner(r) && !strings.Contains(host, ".") {
		return true
	}
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return true
	}
	return slices.ContainsFunc(a.hosts, func(h string) bool {
		suffix, below := strings.CutPrefix(h, "*")
		return h == host || below && strings.HasSuffix(host, suffix) && host != suffix
	})
}
