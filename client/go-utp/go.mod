module github.com/anacrolix/go-utp

go 1.26.0

require github.com/anacrolix/go-libutp v1.3.2

require (
	github.com/anacrolix/log v0.13.1 // indirect
	github.com/anacrolix/missinggo v1.2.1 // indirect
	github.com/anacrolix/missinggo/perf v1.0.0 // indirect
	github.com/anacrolix/mmsg v1.0.1 // indirect
	github.com/anacrolix/sync v0.0.0-20180808010631-44578de4e778 // indirect
	github.com/huandu/xstrings v1.3.0 // indirect
)
