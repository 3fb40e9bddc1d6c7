#!/usr/bin/env bash
# Draw a table of a study as a picture: docs/draw_table.sh results/demo/tables/table2.tex docs/table2.png
# Needs pdflatex and pdftoppm (Debian: texlive-latex-recommended, poppler-utils).
set -euo pipefail

table=$(realpath "$1")
picture=$(realpath "$2")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cat > "$scratch/table.tex" << EOF
\\documentclass{article}
\\usepackage[paperwidth=150mm, paperheight=110mm, margin=5mm]{geometry}
\\usepackage{booktabs}
\\pagestyle{empty}
\\begin{document}
\\input{$table}
\\end{document}
EOF
pdflatex -interaction=batchmode -halt-on-error -output-directory="$scratch" "$scratch/table.tex" > /dev/null
pdftoppm -png -r 130 -singlefile "$scratch/table.pdf" "${picture%.png}"
